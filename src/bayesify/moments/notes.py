"""What each operation adds to a tape: which noise enters there, and which weights it uses."""

import re
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.execution import Function, applied, compiling
from bayesify.moments.missing import calling_module, name_of
from bayesify.moments.norms_in_parts import is_weight
from bayesify.moments.opposite import geometry
from bayesify.moments.registry import RULES, spelled
from bayesify.moments.rules.linear import LINEAR_MAPS, PLAIN_CONVOLUTIONS
from bayesify.moments.rules.product import MATMULS
from bayesify.moments.shared_noise import Contraction, Convolution, Elementwise, Linear, Lookup
from bayesify.moments.standin import holds, replace
from bayesify.moments.values import Moments, Simplex, parts

SUMS = frozenset(spelled("add add_ __add__ __radd__ __iadd__"))
DIFFERENCES = frozenset(spelled("sub sub_ subtract __sub__ __isub__"))
PRODUCTS = frozenset(spelled("mul mul_ multiply __mul__ __rmul__ __imul__"))
QUOTIENTS = frozenset(spelled("div div_ divide true_divide __truediv__ __itruediv__"))
DROPOUTS = frozenset(
    spelled("dropout dropout_ dropout1d dropout2d dropout3d feature_dropout feature_dropout_")
)


def note(
    tape: Any, func: Any, function: Any, args: Any, values: Any, named: Any, result: Any, weights: bool
) -> Any:
    """The result of an operation, after its noise was noted.

    values:  the arguments as the pass has them, `args` as carriers
    weights: some of them are weights that were not spread over the examples
    """
    if func in LINEAR_MAPS:
        _linear(tape, func, args, values, named, result)
    elif func in MATMULS:
        _matmul(tape, args, values, result)
    elif func in SUMS or func in DIFFERENCES:
        alpha = named.get("alpha", 1)
        for arg, value, factor in zip(
            args, values, (1, -alpha if func in DIFFERENCES else alpha), strict=False
        ):
            if is_weight(arg) and weights:
                tape.add_use(Elementwise(value.mean, value.var, result.mean, factor))
    elif func in PRODUCTS:
        _product(tape, args, values, result, weights)
    elif func in QUOTIENTS and weights and is_weight(args[1]) and not is_weight(args[0]) and not named:
        (x, x_var), (w, w_var) = parts(values[0]), parts(values[1])
        tape.add_use(Elementwise(w, w_var, result.mean, -magnitude(x, x_var) / w.square()))
    elif func is F.embedding:
        tape.add_use(Lookup(values[1].mean, values[1].var, result.mean, values[0]))
    elif func is torch.einsum and weights and (terms := _terms(args)) is not None:
        data, weight = (1, 2) if is_weight(args[2]) else (2, 1)
        (x, x_var), (w, w_var) = parts(values[data]), parts(values[weight])
        letters = terms[data - 1], terms[weight - 1], terms[2]
        tape.add_use(Contraction(w, w_var, result.mean, magnitude(x, x_var), letters))
    elif func in DROPOUTS:
        if isinstance(result, Moments) and isinstance(values[0], Moments):
            tape.add_noise(result.mean, (result.var - values[0].var).clamp_min(0))
    elif weights:
        _unshared(tape, func, function, args, values, named, result)
    return result


def _linear(tape: Any, func: Any, args: Any, values: Any, named: Any, y: Moments) -> None:
    (x, x_var), (w, w_var), (b, b_var) = (
        parts(v) for v in (*values[:2], values[2] if len(values) > 2 else None)
    )
    rest = values[3:]
    if b_var is not None:
        shape = (-1,) + (1,) * (y.mean.dim() - 2 if func is not F.linear else 0)
        tape.add_use(Elementwise(b if func is F.linear else b.view(shape), b_var, y.mean, key=b))
    if w_var is None:
        return
    x = magnitude(x, x_var)
    if func is F.linear:
        tape.add_use(Linear(w, w_var, y.mean, x))
    else:
        transposed = func not in PLAIN_CONVOLUTIONS
        tape.add_use(Convolution(w, w_var, y.mean, x, geometry(transposed, rest, named), transposed))


def _matmul(tape: Any, args: Any, values: Any, z: Moments) -> None:
    x, y = (v.moments() if isinstance(v, Simplex) else v for v in values[:2])
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    if is_weight(args[1]) and y_mean.dim() == 2:
        tape.add_use(Linear(y_mean, y_var.mT, z.mean, magnitude(x_mean, x_var)))
        return
    if x_var is not None and y_var is not None:
        tape.add_noise(z.mean, torch.matmul(x_var, y_var.to(x_var.dtype)))
    if is_weight(args[0]) or is_weight(args[1]):
        _unshared(tape, torch.matmul, RULES[torch.matmul], args, values, {}, z)


def _product(tape: Any, args: Any, values: Any, z: Moments, weights: bool) -> None:
    (x, x_var), (y, y_var) = parts(values[0]), parts(values[1])
    shared = [weights and is_weight(arg) for arg in args[:2]]
    if x_var is not None and y_var is not None and sum(shared) != 1:
        tape.add_noise(z.mean, x_var * y_var)
    for is_shared, mean, var, other, other_var in (
        (shared[0], x, x_var, y, y_var),
        (shared[1], y, y_var, x, x_var),
    ):
        if is_shared:
            tape.add_use(
                Elementwise(mean, var, z.mean, other if all(shared) else magnitude(other, other_var))
            )


def _terms(args: Any) -> list[str] | None:
    """The letters of an einsum of data and one weight; None of others."""
    found = re.fullmatch(r"([a-zA-Y]+),([a-zA-Y]+)->([a-zA-Y]+)", str(args[0]).replace(" ", ""))
    if found is None or len(args) != 3 or is_weight(args[1]) == is_weight(args[2]):
        return None
    return [*found.groups()]


def magnitude(x: Any, var: Tensor | None) -> Any:
    """±√((E x)² + Var x): what the noise of a weight meets at an input that has noise itself.

    Positions share the inputs' noise as they share the weight's, so noise × noise adds up over them as all else does.
    """
    if var is None:
        return x
    return applied(_Magnitude, x, var)


class _Magnitude(Function):
    """z = ±√(x² + v); by v 1 / 2z, by x x / z."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, var: Tensor) -> Tensor:
        size = torch.addcmul(var.to(x.dtype), x, x).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return torch.where(x < 0, -size, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.dtype = inputs[1].dtype

    @staticmethod
    def backward(ctx: Any, by_z: Tensor) -> tuple[Tensor, Tensor]:
        x, z = ctx.saved_tensors
        quotient = by_z / z
        return quotient * x, (0.5 * quotient).to(ctx.dtype)


def _unshared(tape: Any, func: Any, function: Any, args: Any, values: Any, named: Any, result: Any) -> None:
    """What weights add to every entry, as if each entry had noise of its own."""
    _tell_once(tape, f"{name_of(func)} in {calling_module()}")
    fixed = tuple(
        v.mean if is_weight(a) and isinstance(v, Moments) else v for a, v in zip(args, values, strict=True)
    )
    without = function(*fixed, **named) if holds((fixed, named), (Moments, Simplex)) else None
    for each, other in zip(
        _moments(result), _moments(without) if without is not None else [None], strict=False
    ):
        var = each.var if other is None else (each.var - other.var.detach()).clamp_min(0)
        tape.add_noise(each.mean, var)


def _tell_once(tape: Any, place: str) -> None:
    """That the noise of weights is not followed here."""
    if compiling() or place in tape.unseen:
        return
    tape.unseen[place] = None
    warnings.warn(
        f"the covariance of the outputs does not follow the weights into {place}: their noise is taken as independent "
        f"in every entry of the result, which makes variances too small where entries share it. "
        f"bf.diagnostics.moment_check(model, loader) says whether that matters",
        stacklevel=2,
    )


def _moments(value: Any) -> list[Moments]:
    found: list[Moments] = []
    replace(value, Moments, found.append)
    return found
