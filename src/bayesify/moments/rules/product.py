"""Products of two tensors: matmul, bmm, einsum; and softmax rows times values."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.moments.missing import not_covered
from bayesify.moments.recompute import recomputed
from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.arithmetic import add, complex_product, has_complex, mul, times
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, Simplex, certain, parts


def product(operation: Any, x: Any, y: Any) -> Moments:
    """z = Σ x·y, entries independent: Var z = Σ Var x (E y)² + ((E x)² + Var x) Var y."""
    if has_complex(x, y):
        return complex_product(operation, x, y)
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    mean = operation(x_mean, y_mean)
    dtype = (y_var if x_var is None else x_var).dtype  # variances may come in another precision than means
    if y_var is None:
        return Moments(mean, operation(x_var, _square(y_mean).to(dtype)))
    if x_var is None:
        return Moments(mean, operation(_square(x_mean).to(dtype), y_var))
    second = (x_mean.square() + x_var).to(dtype)
    return Moments(mean, operation(second, y_var) + operation(x_var, y_mean.square().to(dtype)))


def _square(x: Tensor) -> Tensor:
    return x.square() if x.layout == torch.strided else x * x  # compressed sparse matrices have no square


MATMULS = (torch.linalg.matmul, torch.sparse.mm, *spelled("matmul", "bmm", "mm", "mv", "spmm", "__matmul__"))


@rule(*MATMULS, simplex=True, half=True, complex_too=True)
def matmul(x: Any, y: Any) -> Moments:
    """x y; rows of attention weights x give a weighted mean."""
    if isinstance(x, Simplex):
        y = y.moments() if isinstance(y, Simplex) else y
        return weighted_mean(x, y) if parts(y)[0].dim() > 1 else product(torch.matmul, x.moments(), y)
    return product(torch.matmul, x, y.moments() if isinstance(y, Simplex) else y)


rule(torch.Tensor.__rmatmul__, half=True)(lambda y, x: product(torch.matmul, x, y))


@rule(*spelled("dot", "vdot"), torch.linalg.vecdot, composite=True)
def dot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Σ x·y as it stands: so the length of x, x·x, has the variance of squares."""
    return (x * y).sum(dim)


for _operation in (*spelled("outer", "ger", "inner", "kron"),):
    rule(_operation, half=True)(partial(product, _operation))


@rule(torch.tensordot, half=True)
def tensordot(x: Any, y: Any, dims: Any = 2, out: None = None) -> Moments:
    """A sum of products over the dimensions `dims`."""
    return product(lambda a, b: torch.tensordot(a, b, dims), x, y)


@rule(internals.grouped_mm, half=True)  # what F.grouped_mm calls
def grouped_mm(
    x: Any, y: Any, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None
) -> Moments:
    """Groups of rows, each times a matrix of its own: a mixture of experts."""
    result = product(lambda a, b: internals.grouped_mm(a, b, offs, None, out_dtype), x, y)
    return result if bias is None else add(result, bias)


def added(operation: Any, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Moments:
    """βb + α x·y."""
    random = any(isinstance(t, Moments | Simplex) for t in (x, y))
    result = times(operation(x if random else certain(x), y), alpha)
    bias = bias.moments() if isinstance(bias, Simplex) else bias
    return add(result, bias, alpha=beta) if beta else result


def _batch_sum(x: Any, y: Any) -> Moments:
    return moved(torch.sum, matmul(x, y), 0)


for _name, _of in (
    ("baddbmm", matmul),
    ("addbmm", _batch_sum),
    ("addmv", matmul),
    ("addr", partial(product, torch.outer)),
):
    rule(*spelled(_name, f"{_name}_"), simplex=_of is matmul, half=True)(partial(added, _of))


@rule(torch.linalg.solve_triangular)
def solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Moments:
    """y = A⁻¹ b to first order, dy = A⁻¹ (db − dA y):  Var y = (A⁻¹)² (Var b + Var A y²), squares by entry.

    Entries of A on the other side of its diagonal do not count, with `unitriangular` nor those on it.
    """
    if not left:
        raise NotImplementedError(not_covered(torch.linalg.solve_triangular, "left=False"))
    (matrix, a_var), (right, b_var) = parts(a), parts(b)

    def solved(values: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(matrix, values, upper=upper, unitriangular=unitriangular)

    y = solved(right)
    var: Any = 0.0 if b_var is None else b_var
    if a_var is not None:
        counted = a_var.triu(int(unitriangular)) if upper else a_var.tril(-int(unitriangular))
        var = var + counted @ y.square()
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return Moments(y, solved(unit.expand(matrix.shape)).square() @ var)


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


@rule(torch.einsum, half=True, complex_too=True)
def einsum(equation: str, *operands: Any) -> Moments:
    """One or two operands. An index summed in one operand alone is summed first: its terms share the other."""
    if len(operands) == 1 and type(operands[0]) in (list, tuple):
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
        return _summed(left, out, operands[0])
    reduced = [
        _sum_alone(t, set(other) | set(out), x)
        for t, other, x in zip(terms, terms[::-1], operands, strict=True)
    ]
    (first, x), (second, y) = reduced
    if x is y and first == second:
        return _summed(first, out, mul(x, y))
    return product(lambda a, b: torch.einsum(f"{first},{second}->{out}", a, b), x, y)


def _sum_alone(term: str, others: set[str], x: Any) -> tuple[str, Any]:
    """`x` summed over the indices that appear neither in the other operand nor in the result."""
    remaining = "".join(c for c in term if c in others or c == ".")
    return remaining, x if remaining == term else _summed(term, remaining, x)


def _summed(term: str, remaining: str, x: Any) -> Any:
    """The sum over the other indices than those that remain, in their order."""
    return moved(partial(torch.einsum, f"{term}->{remaining}"), x)
