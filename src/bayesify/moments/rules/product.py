"""Products of two tensors: matmul, bmm, einsum; and softmax rows times values."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.carrier import Moments, Simplex, parts, rule, spelled
from bayesify.moments.missing import not_covered
from bayesify.moments.recompute import recomputed


def product(operation: Any, x: Any, y: Any) -> Moments:
    """z = Σ x·y, entries independent: Var z = Σ Var x (E y)² + ((E x)² + Var x) Var y."""
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    mean = operation(x_mean, y_mean)
    dtype = (y_var if x_var is None else x_var).dtype  # variances may come in another precision than means
    if y_var is None:
        return Moments(mean, operation(x_var, y_mean.square().to(dtype)))
    if x_var is None:
        return Moments(mean, operation(x_mean.square().to(dtype), y_var))
    second = (x_mean.square() + x_var).to(dtype)
    return Moments(mean, operation(second, y_var) + operation(x_var, y_mean.square().to(dtype)))


@rule(*spelled("matmul", "bmm", "mm", "mv", "dot", "vdot", "__matmul__"), simplex=True, half=True)
def matmul(x: Any, y: Any) -> Moments:
    if isinstance(x, Simplex):
        y = y.moments() if isinstance(y, Simplex) else y
        return weighted_mean(x, y) if parts(y)[0].dim() > 1 else product(torch.matmul, x.moments(), y)
    return product(torch.matmul, x, y.moments() if isinstance(y, Simplex) else y)


@rule(torch.Tensor.__rmatmul__, half=True)
def rmatmul(y: Any, x: Any) -> Moments:
    return product(torch.matmul, x, y)


@rule(*spelled("baddbmm"), simplex=True, half=True)
def baddbmm(bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Moments:
    """βb + α x·y."""
    mean, var = matmul(x, y)
    b, b_var = parts(bias)
    var = alpha**2 * var
    return Moments(alpha * mean + beta * b if beta else alpha * mean, _plus(var, b_var, beta))


def _plus(var: Tensor, other: Tensor | None, factor: float) -> Tensor:
    return var if other is None else var + factor**2 * other


def weighted_mean(a: Simplex, values: Any) -> Moments:
    """o = Σ_j a_j v_j, the rows of a = softmax(scores) summing to 1 (FORMULAS part 3, attention).

    Var o = Σ_j (a_j² + Var a_j) Var v_j + Σ_j a_j² s_j (E v_j − o)²,  s the variance of the scores.
    The last sum is expanded in v − c, c the mean over j, so that it never has to hold a (rows, j, values) tensor and
    an offset common to all v cancels before anything is squared. Scores of a row are taken as independent, although
    they share the query. a_j²s_j counts up to a_j: then the sum is the variance of a value picked at random, the most
    there can be, while first order would grow with s without limit. Dropout of the a_j with rate p adds
    p/(1 − p) Σ_j (a_j² + Var a_j)((E v_j)² + Var v_j).
    """
    mean, v_var = parts(values)
    if v_var is None:
        return Moments(*recomputed(partial(_weighted, a.dropped, None), *a[:3], mean))
    return Moments(*recomputed(partial(_weighted, a.dropped), v_var, *a[:3], mean))


def _weighted(
    dropped: float, v_var: Tensor | None, a: Tensor, a_var: Tensor, score_var: Tensor, mean: Tensor
) -> tuple[Tensor, Tensor]:
    centre = mean.mean(-2, keepdim=True)
    centred = mean - centre
    offset = torch.matmul(a, centred)  # (..., rows, values)
    by_score = torch.minimum(a.square() * score_var, a)  # at most that of weights that are 0 or 1
    var = (
        torch.matmul(by_score, centred.square())
        - 2 * offset * torch.matmul(by_score, centred)
        + offset.square() * by_score.sum(-1, keepdim=True)
    ).clamp_min(0)
    if v_var is not None or dropped:
        second = a.square() + a_var
        if v_var is not None:
            var = var + torch.matmul(second.to(v_var.dtype), v_var)
        if dropped:
            square = mean.square() if v_var is None else mean.square() + v_var
            var = var + dropped / (1 - dropped) * torch.matmul(second, square)
    rows = a.sum(-1, keepdim=True)  # 1, or 0 where everything was masked
    return offset + rows * centre, var


@rule(torch.einsum, half=True)
def einsum(equation: str, *operands: Any) -> Moments:
    """One or two operands. An index summed in one operand alone is summed first: its terms share the other."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if any(len(set(t.replace("...", ""))) != len(t.replace("...", "")) for t in terms) or len(terms) > 2:
        case = f"{equation!r} (more than two operands, or an index twice in one)"
        raise NotImplementedError(not_covered(torch.einsum, case))
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        out = "..." * ("..." in left) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(terms) == 1:
        mean, var = parts(operands[0])
        return Moments(torch.einsum(f"{left}->{out}", mean), torch.einsum(f"{left}->{out}", var))
    reduced = [
        _sum_alone(t, set(other) | set(out), x)
        for t, other, x in zip(terms, terms[::-1], operands, strict=True)
    ]
    (first, x), (second, y) = reduced
    return product(lambda a, b: torch.einsum(f"{first},{second}->{out}", a, b), x, y)


def _sum_alone(term: str, elsewhere: set[str], x: Any) -> tuple[str, Any]:
    """`x` summed over the indices that appear neither in the other operand nor in the result."""
    kept = "".join(c for c in term if c in elsewhere or c == ".")
    if kept == term:
        return term, x
    mean, var = parts(x)
    summed = torch.einsum(f"{term}->{kept}", mean)
    return kept, summed if var is None else Moments(summed, torch.einsum(f"{term}->{kept}", var))
