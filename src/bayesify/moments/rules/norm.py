"""Normalisation layers. Layer, group, instance and RMS norm to full first order; a simple form, which scales only; and
a form that divides by the total of both moments."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.moments.recompute import recomputed
from bayesify.moments.registry import rule
from bayesify.moments.rules.lengths import direction_var
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, parts

NORM_FORMS = ("", "total", "simple")  # first order; divided by the total of both moments; scaled only


@rule(F.batch_norm, half=True)
def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Moments:
    """Var y = γ² Var x / (v + ε); v is the batch's variance of the means in training, else the running one.

    A batch's own statistics are taken as fixed: what they add is of relative size 1 / (entries per channel).
    """
    mean, var = parts(x)
    shape = (1, -1) + (1,) * (mean.dim() - 2)  # (1, channels, 1, ...)
    if training:
        v = mean.var((0, *range(2, mean.dim())), correction=0)
    else:
        assert running_var is not None
        v = running_var
    (gamma, gamma_var), (beta, beta_var) = parts(weight), parts(bias)
    if gamma_var is None and beta_var is None and var is not None:
        gain = (v + eps).rsqrt() if gamma is None else gamma * (v + eps).rsqrt()
        y = F.batch_norm(mean, running_mean, running_var, gamma, beta, training, momentum, eps)
        return Moments(y, var * gain.square().view(shape), slope=gain.view(shape))
    gain = (v + eps).rsqrt().view(shape)
    centred = F.batch_norm(mean, running_mean, running_var, None, None, training, momentum, eps)
    y_mean, y_var = affine(centred, None if var is None else var * gain.square(), weight, bias, shape)
    return Moments(y_mean, y_var, slope=gain if gamma is None else gamma.view(shape) * gain)


@rule(F.layer_norm, form=NORM_FORMS)
def layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, form: str
) -> Moments:
    """`standardize` over the last dimensions, then γ and β."""
    dims = tuple(range(-len(normalized_shape), 0))
    return affine(*standardize(x, dims, eps, form), weight, bias, tuple(normalized_shape))


@rule(F.group_norm, form=NORM_FORMS)
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, form: str
) -> Moments:
    """`standardize` over the channels and positions of each group, then γ and β."""
    mean, _ = parts(x)
    grouped = moved(torch.reshape, x, (mean.shape[0], num_groups, -1))  # (batch, groups, entries)
    y, y_var = standardize(grouped, (-1,), eps, form)
    y_var = None if y_var is None else y_var.view(mean.shape)
    return affine(y.view(mean.shape), y_var, weight, bias, (1, -1) + (1,) * (mean.dim() - 2))


@rule(F.instance_norm, form=NORM_FORMS)
def instance_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    form: str,
) -> Moments:
    """Group norm with one channel per group; with running statistics in eval mode a fixed scaling."""
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, _ = parts(x)
    if running_mean is not None:  # updates the running statistics
        F.instance_norm(mean, running_mean, running_var, None, None, True, momentum, eps)
    return group_norm(x, mean.shape[1], weight, bias, eps, form=form)


@rule(F.rms_norm, form=("", "total"))
def rms_norm(
    x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, *, form: str
) -> Moments:
    """y = x r, r² = 1/(mean x² + ε), d entries:  Var y_i = r²[Var x_i (1 − 2y_i²/d) + y_i²/d² Σ_j y_j² Var x_j]."""
    mean, var = parts(x)
    dims = tuple(range(-len(normalized_shape), 0))
    d = torch.Size(normalized_shape).numel()
    eps = torch.finfo(mean.dtype).eps if eps is None else eps
    power = mean.square() + var if form == "total" and var is not None else mean.square()
    precision = 1 / (power.mean(dims, keepdim=True) + eps)
    y = mean * precision.sqrt()
    if var is not None:
        square = y.square()
        shared = (square * var).sum(dims, keepdim=True)
        var = precision * (var * (1 - 2 / d * square) + square * shared / d**2)
    return affine(y, var, weight, None, tuple(normalized_shape))


@rule(F.local_response_norm)
def local_response_norm(
    x: Moments, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Moments:
    """y = x D^{−β}, D = k + (α/n) Σ x² over n channels around; q = 2αβ/(n D):

    Var y_i = D_i^{−2β} [Var x_i (1 − 2 q_i x_i²) + q_i² x_i² Σ_j x_j² Var x_j], the sum over the same channels.
    """

    def around(t: Tensor) -> Tensor:
        ends = F.pad(t.movedim(1, -1), (size // 2, (size - 1) // 2))
        return ends.unfold(-1, size, 1).sum(-1).movedim(-1, 1)

    square = x.mean.square()
    d = k + alpha / size * around(square)
    q = 2 * alpha * beta / size / d
    var = x.var * (1 - 2 * q * square) + q.square() * square * around(square * x.var)
    return Moments(x.mean * d.pow(-beta), d.pow(-2 * beta) * var)


@rule(internals.weight_norm)
def weight_norm(v: Any, g: Any, dim: int = 0) -> Moments:
    """w = g u, u = v/‖v‖ over all dimensions but `dim`:
    Var w_i = (g/‖v‖)²[s_i(1 − 2u_i²) + u_i² Σ_j u_j²s_j] + u_i² Var g, s = Var v (what both add is left out)."""
    (mean, s), (g_mean, g_var) = parts(v), parts(g)
    dims = tuple(d for d in range(mean.dim()) if d != dim % mean.dim())
    norm = torch.linalg.vector_norm(mean, dim=dims, keepdim=True)
    u = mean / norm
    var = torch.zeros_like(mean) if g_var is None else u.square() * g_var
    if s is not None:
        var = var + (g_mean / norm).square() * direction_var(u, u, s, dims)
    return Moments(g_mean * u, var)


def standardize(x: Any, dims: tuple[int, ...], eps: float, form: str) -> tuple[Tensor, Tensor | None]:
    """y = (x − x̄)/√V over `dims`, d entries; (E y, Var y) to first order (eq. 14 corrected):

    Var y_i = (1/V)[Var x_i (1 − 2/d − 2y_i²/d) + (1/d²)(Σ Var x + 2y_i Σ y_j Var x_j + y_i² Σ y_j² Var x_j)]
    V = Var(E x) + ε; the "total" form adds the mean of Var x, which is part of what a draw of x is divided by. The
    "simple" form keeps Var x_i / V.
    """
    mean, var = parts(x)
    if var is None:
        return _standardized(mean, None, dims, eps)[0], None
    if form == "simple":
        y, precision = _standardized(mean, None, dims, eps)
        return y, precision * var
    return recomputed(partial(_standardize, dims, eps, form == "total"), mean, var)  # type: ignore[return-value]


def _standardized(
    mean: Tensor, spread: Tensor | None, dims: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor]:
    """(y, 1/V); `spread` is the mean of Var x over `dims`, for the "total" form."""
    v, m = torch.var_mean(mean, dims, correction=0, keepdim=True)
    if spread is not None:
        d = mean.numel() // max(m.numel(), 1)
        v = v + (1 - 1 / d) * spread
    precision = 1 / (v + eps)
    return (mean - m) * precision.sqrt(), precision


def _standardize(
    dims: tuple[int, ...], eps: float, total: bool, mean: Tensor, var: Tensor
) -> tuple[Tensor, Tensor]:
    """The formula of `standardize` in few operations, with u = 2 Var x/d:
    Var y = (1/V)[Var x − u + (1/d) mean(Var x) + y (mean(y u) + y (½ mean(y² u) − u))]."""
    spread = var.mean(dims, keepdim=True)
    y, precision = _standardized(mean, spread if total else None, dims, eps)
    d = mean.numel() // max(precision.numel(), 1)
    u = (2 / d) * var
    weighted = y * u
    one, two = weighted.mean(dims, keepdim=True), 0.5 * (y * weighted).mean(dims, keepdim=True)
    return y, precision * (var - u + spread / d + y * (one + y * (two - u))).clamp_min(0)


def affine(y: Tensor, var: Tensor | None, weight: Any, bias: Any, shape: tuple[int, ...]) -> Moments:
    """γy + β: Var = (γ² + Var γ) Var y + Var γ (E y)² + Var β; γ and β may be random or left out."""
    (gamma, gamma_var), (beta, beta_var) = parts(weight), parts(bias)
    mean, y_var = y, var
    if gamma is not None:
        gamma = gamma.view(shape)
        mean = gamma * y
        var = None if y_var is None else gamma.square() * y_var
    if gamma_var is not None:
        own = gamma_var.view(shape) * (y.square() if y_var is None else y.square() + y_var)
        var = own if var is None else var + own
    if beta is not None:
        mean = mean + beta.view(shape)
    if beta_var is not None:
        beta_var = beta_var.view(shape)
        var = beta_var.expand(mean.shape) if var is None else var + beta_var
    return Moments(mean, torch.zeros_like(mean) if var is None else var)
