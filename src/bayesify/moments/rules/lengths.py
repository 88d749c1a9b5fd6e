"""Lengths of vectors and what is divided by them, variances and standard deviations, all to first order."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.arithmetic import add, average, sub
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, parts


@rule(torch.linalg.vector_norm)
def vector_norm(
    x: Moments, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Moments:
    """y = ‖x‖_p, p ≥ 1:  Var y = Σ_j r_j² Var x_j, r_j = ∂y/∂x_j = ±(|x_j|/y)^{p − 1}. At x = 0 it is 0."""
    if ord == "fro":
        ord = 2
    if isinstance(ord, str) or not 1 <= ord < float("inf"):
        raise NotImplementedError(not_covered(torch.linalg.vector_norm, f"ord={ord!r}"))
    mean, var = x if dtype is None else moved(Tensor.to, x, dtype)
    y = torch.linalg.vector_norm(mean, ord, dim, keepdim=True)
    slope = _slope(mean, y.clamp_min(torch.finfo(y.dtype).tiny), ord)
    length = torch.linalg.vector_norm(mean, ord, dim, keepdim)
    return Moments(length, torch.sum(slope.square() * var, dim, keepdim))


def _slope(x: Tensor, y: Tensor, p: float) -> Tensor:
    """∂‖x‖_p/∂x."""
    return x / y if p == 2 else x.sign() * (x.abs() / y).pow(p - 1)


@rule(torch.norm, torch.Tensor.norm)
def norm(
    x: Moments, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Moments:
    """`vector_norm`, also over two dimensions."""
    if out is not None:
        raise NotImplementedError(not_covered(torch.norm, "out="))
    return vector_norm(x, "fro" if p is None else p, dim, keepdim, dtype=dtype)


@rule(torch.linalg.norm)
def linalg_norm(
    x: Moments, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Moments:
    """`vector_norm`; with a number `ord` and two dimensions it is the norm of a matrix, which has no rule."""
    dims = (x.mean.dim() if dim is None else 1) if dim is None or isinstance(dim, int) else len(dim)
    if ord not in (None, "fro") and dims != 1:
        raise NotImplementedError(not_covered(torch.linalg.norm, f"ord={ord!r} of a matrix"))
    return vector_norm(x, "fro" if ord is None else ord, dim, keepdim, dtype=dtype)


@rule(*spelled("pairwise_distance"))
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Moments:
    """‖x − y + ε‖_p."""
    return vector_norm(add(sub(x1, x2), eps), p, -1, keepdim)


rule(*spelled("dist"))(lambda x, y, p=2.0: vector_norm(sub(x, y), p))


@rule(torch.nn.functional.mse_loss, composite=True)
def mse_loss(
    x: Any, y: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:
    """Networks with a loss of their own, as autoencoders have."""
    if weight is not None:
        raise NotImplementedError(not_covered(torch.nn.functional.mse_loss, "weight"))
    square = (x - y).square()
    return square if reduction == "none" else getattr(square, reduction)()


@rule(torch.cdist)
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Moments:
    """‖x_i − y_j‖_p of all rows i and j; holds all differences, (..., rows of x, rows of y, columns)."""
    return vector_norm(sub(moved(torch.unsqueeze, x1, -2), moved(torch.unsqueeze, x2, -3)), p, -1)


@rule(F.normalize, form=("", "total"))
def normalize(
    x: Moments, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None, *, form: str
) -> Moments:
    """u = x/n, n = ‖x‖_p at least ε, r = ∂n/∂x:  Var u_i = (1/n²)[s_i(1 − 2u_i r_i) + u_i² Σ_j r_j²s_j], s = Var x.

    The "total" form adds Var x to x² in the norm with p = 2.
    """
    if out is not None or not 1 <= p < float("inf"):
        raise NotImplementedError(not_covered(F.normalize, f"p={p!r}" if out is None else "out="))
    if form == "total" and p == 2:
        n = (x.mean.square() + x.var).sum(dim, keepdim=True).sqrt()
    else:
        n = torch.linalg.vector_norm(x.mean, p, dim, keepdim=True)
    inside = n > eps
    n = n.clamp_min(eps)
    u = x.mean / n
    slope = torch.where(inside, _slope(x.mean, n, p), 0.0)
    return Moments(u, direction_var(u, slope, x.var, dim) / n.square())


def direction_var(u: Tensor, slope: Tensor, s: Tensor, dims: Any) -> Tensor:
    """n² Var (x/n) for a length n with derivative `slope`, to first order; u = x/n, s = Var x."""
    shared = (slope.square() * s).sum(dims, keepdim=True)
    return s * (1 - 2 * u * slope) + u.square() * shared


@rule(*spelled("cosine_similarity"))
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Moments:
    """c = Σ u v, u = x/‖x‖, v = y/‖y‖:  Var c = Σ (v − c u)² Var x/‖x‖² + Σ (u − c v)² Var y/‖y‖²."""
    (x, x_var), (y, y_var) = parts(x1), parts(x2)
    x, y = torch.broadcast_tensors(x, y)
    lengths = [torch.linalg.vector_norm(t, dim=dim, keepdim=True).clamp_min(eps) for t in (x, y)]
    u, v = x / lengths[0], y / lengths[1]
    c = (u * v).sum(dim, keepdim=True)
    var = torch.zeros_like(c)
    for s, n, own, other in ((x_var, lengths[0], u, v), (y_var, lengths[1], v, u)):
        if s is not None:
            var = var + ((other - c * own).square() * s / n.square()).sum(dim, keepdim=True)
    return Moments(c.squeeze(dim), var.squeeze(dim))


def spread(
    of: str,
    x: Moments,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Any:
    """V = Σ_j (x_j − x̄)²/n, n entries less the correction:  Var V = (4/n²) Σ_j (x_j − x̄)² Var x_j.

    √V is the length of (x − x̄)/√n, so its variance is Σ_j r_j² Var x_j/n, r that vector's direction. "var_mean" and
    "std_mean" give the mean beside it; var(x, False) says `unbiased` in the second place.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    centre = x.mean.mean(dim, keepdim=True)
    y, n = x.mean - centre, max(x.mean.numel() // max(centre.numel(), 1) - correction, 0)
    if of.startswith("var"):
        var = 4 / n**2 * (y.square() * x.var).sum(dim, keepdim=keepdim)
        found = Moments(torch.sum(y.square(), dim, keepdim) / n, var)
    else:
        length = vector_norm(Moments(y, x.var), 2, dim, keepdim)
        found = Moments(length.mean / n**0.5, length.var / n)
    return (found, average(x, dim, keepdim)) if of.endswith("mean") else found


for _name in ("var", "std", "var_mean", "std_mean"):
    rule(*spelled(_name))(partial(spread, _name))
