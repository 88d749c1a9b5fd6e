"""Linear maps with independent entries: linear layers and convolutions, plain and transposed; bilinear maps."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.recompute import forgetting
from bayesify.moments.registry import rule
from bayesify.moments.rules.arithmetic import times
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, in_dtype, parts

PLAIN_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
CONVOLUTIONS = (*PLAIN_CONVOLUTIONS, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
LINEAR_MAPS = (F.linear, *CONVOLUTIONS)
MERGED = (F.linear, *PLAIN_CONVOLUTIONS)  # inputs and weights meet in one dimension, which may be extended


def linear_map(
    operation: Any,
    x: Moments | Tensor,
    weight: Moments | Tensor,
    bias: Moments | Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Moments:
    """y = w·x + b, entries of w, x and b independent (paper 3, eq. 7 corrected).

    E y = E w·E x + E b;   Var y = ((E w)² + Var w)·Var x + Var w·(E x)² + Var b
    The variance is multiplied in the precision in which variances come.
    """
    x_mean, x_var = parts(x)
    w_mean, w_var = parts(weight)
    b_mean, b_var = parts(bias)
    mean = operation(x_mean, w_mean, b_mean, *args, **kwargs)
    dtype = next(var.dtype for var in (x_var, w_var, b_var) if var is not None)
    products, again = [], []  # pairs of input and weight whose maps add up to the variance
    if x_var is not None:
        products.append((x_var, _second_moment(w_mean, w_var, dtype)))
        again.append((products[-1][1], lambda: _second_moment(w_mean.detach(), _detached(w_var), dtype)))
    if w_var is not None:
        products.append((_second_moment(x_mean, None, dtype), in_dtype(w_var, dtype)))
        again.append((products[-1][0], lambda: _second_moment(x_mean.detach(), None, dtype)))
    if not products:  # only the bias is random
        products.append((x_mean.new_zeros(x_mean.shape), w_mean))
    with forgetting(*again):
        return Moments(mean, _sum_of_maps(operation, products, b_var, args, kwargs))


def variance_map(
    operation: Any, x: Tensor, w_var: Tensor, b_var: Tensor | None, *args: Any, **kwargs: Any
) -> Tensor:
    """Var y = Var w·x² + Var b for an input x without variance, alone."""
    squares = x.square()
    with forgetting((squares, lambda: x.detach().square())):
        return _sum_of_maps(operation, [(squares, w_var)], b_var, args, kwargs)


def _second_moment(mean: Tensor, var: Tensor | None, dtype: torch.dtype) -> Tensor:
    return mean.square().to(dtype) if var is None else (mean.square() + var).to(dtype)


def _detached(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()


def _sum_of_maps(operation: Any, products: list[Any], bias: Any, args: Any, kwargs: Any) -> Tensor:
    """Σ of the maps of all (input, weight) pairs, + bias; two pairs of a linear layer as one product of joined inputs.

    (Joined convolutions have twice as many inputs as outputs, for which Inductor leaves the channels-last layout.)
    """
    (first, weight), *rest = products
    bias = None if bias is None else bias.to(first.dtype)
    if operation is F.linear and rest and first.is_cuda and not _one_per_output(rest[0][1]):
        return F.linear(torch.cat([x for x, _ in products], -1), torch.cat([w for _, w in products], 1), bias)
    total = _map(operation, first, weight, bias, args, kwargs)
    for x, w in rest:
        total = total + _map(operation, x, w, None, args, kwargs)
    return total


def _map(operation: Any, x: Tensor, weight: Tensor, bias: Any, args: Any, kwargs: Any) -> Tensor:
    plain = operation in MERGED and (operation is F.linear or _groups(args, kwargs) == 1)
    if plain and _one_per_output(weight):
        return _shared(operation, x, weight, bias, args, kwargs)
    return operation(x, weight, bias, *args, **kwargs)


def _shared(operation: Any, squares: Tensor, w_var: Tensor, b_var: Any, args: Any, kwargs: Any) -> Tensor:
    """Var w·(E x)² + Var b with one variance s_k per output k: s_k Σ_j (E x_j)², one map with ones for all k."""
    s = w_var.flatten(1)[:, 0]  # (outputs,)
    if operation is F.linear:
        var = squares.sum(-1, keepdim=True) * s
        return var if b_var is None else var + b_var
    ones = w_var.new_ones(1, 1, *w_var.shape[2:])
    channels = squares.dim() - w_var.dim() + 1  # 0 for an input without a batch
    var = operation(squares.sum(channels, keepdim=True), ones, None, *args, **kwargs)
    shape = (-1,) + (1,) * (w_var.dim() - 2)  # (outputs, 1, ...)
    var = var * s.view(shape)
    return var if b_var is None else var + b_var.view(shape)


def _one_per_output(w_var: Tensor) -> bool:
    """Is the variance the same number over all but the first dimension (an expanded view)?"""
    return w_var.dim() > 1 and all(s == 0 for s in w_var.stride()[1:])


def _groups(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return kwargs.get("groups", args[3] if len(args) > 3 else 1)


for _operation in LINEAR_MAPS:
    rule(_operation, half=True)(partial(linear_map, _operation))


@rule(torch.addmm, torch.Tensor.addmm, torch.Tensor.addmm_, half=True)
def addmm(bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Moments:
    """βb + α x·w."""
    transposed = moved(torch.t, weight)
    return linear_map(F.linear, times(x, alpha), transposed, times(bias, beta) if beta else None)


@rule(F.bilinear)
def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Moments:
    """z_k = Σ_ij x_i w_kij y_j + b_k, entries independent:

    Var z_k = Σ_i Var x_i (Σ_j w y_j)² + Σ_j Var y_j (Σ_i w x_i)² + Σ_ij w² Var x_i Var y_j
              + Σ_ij Var w (x_i² + Var x_i)(y_j² + Var y_j) + Var b_k,  means where not said otherwise
    """
    (x_mean, x_var), (y_mean, y_var), (w, w_var) = parts(x), parts(y), parts(weight)
    b, b_var = parts(bias)
    mean = F.bilinear(x_mean, y_mean, w, b)
    var = torch.zeros_like(mean)
    if x_var is not None:
        var = var + torch.einsum("...i,...ki->...k", x_var, torch.einsum("kij,...j->...ki", w, y_mean) ** 2)
    if y_var is not None:
        var = var + torch.einsum("...j,...kj->...k", y_var, torch.einsum("kij,...i->...kj", w, x_mean) ** 2)
    if x_var is not None and y_var is not None:
        var = var + F.bilinear(x_var, y_var, w.square())
    if w_var is not None:
        x_second = x_mean.square() if x_var is None else x_mean.square() + x_var
        y_second = y_mean.square() if y_var is None else y_mean.square() + y_var
        var = var + F.bilinear(x_second, y_second, w_var)
    return Moments(mean, var if b_var is None else var + b_var)
