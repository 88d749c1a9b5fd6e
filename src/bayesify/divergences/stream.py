"""`direct`, the plain Monte-Carlo estimator, whose graph grows with M; `stream`, the same without the graph.

`stream` takes any differentiable log-density and has one node per coordinate of θ (FORMULAS 2.4). With g = −log p and
the coordinates of the family's form, accumulated without a graph over the draws:

    w = loc + scale ξ         V = mean g(w_i)   c_loc = mean g′(w_i)       c_scale = mean g′(w_i) ξ_i
    w = sign scale ξ          V                                            c_scale = mean g′(w_i) sign ξ_i
    w = sign exp(loc + scale ξ)   V             c_loc = mean g′(w_i) w_i   c_scale = mean g′(w_i) w_i ξ_i

    V + Σ (loc − sg(loc)) c_loc + (scale − sg(scale)) c_scale

has the value and the first gradient of `direct`; memory does not depend on M. It has no second derivatives.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from bayesify.divergences.parameterization import coordinates
from bayesify.divergences.repar import log_density
from bayesify.divergences.statistics import Draws, chunks
from bayesify.execution import transformed
from bayesify.families.base import Family
from bayesify.families.location_scale import LocationScale
from bayesify.families.log_location_scale import LogLocationScale
from bayesify.priors.base import Prior


def direct(q: Family, p: Prior, draws: Draws) -> Tensor:
    """1/M Σ [log q(w_i) − log p(w_i)], every draw a part of the graph (paper 1, eq. 3)."""
    noise = q.noise((draws.num,), draws.generator) if draws.noise is None else draws.noise
    w = q.transform(noise)  # (M, *shape)
    return (q.log_prob(w).sum() - log_prior(q, p, w).sum()) / draws.num


def log_prior(q: Family, p: Prior, w: Tensor) -> Tensor:
    """log p of each draw, (*draws, *shape) → (*draws); priors on the positive half-line are densities of |w|."""
    return p.tensor_log_prob(w.abs() if p.lower >= 0 else w, len(q.shape))


def stream(q: Family, p: Prior, draws: Draws) -> Tensor:
    """E log q(w) − 1/M Σ log p(w_i) by value and first gradient; E log q as in `repar`."""
    value, slopes = _accumulated(q, p, draws)
    surrogate = value
    for theta, slope in zip(coordinates(q), slopes, strict=True):
        surrogate = surrogate + ((theta - theta.detach()) * slope).sum()
    return surrogate + log_density(q, draws)


def _accumulated(q: Family, p: Prior, draws: Draws) -> tuple[Tensor, list[Tensor]]:
    """V and the slopes c of each coordinate, without a graph."""

    def energy(w: Tensor) -> Tensor:
        return -log_prior(q, p, w).sum()

    value: Tensor | None = None
    slopes: list[Tensor] = []
    with torch.no_grad():
        for noise in chunks(q, draws):
            w = q.transform(noise)
            (gradient,), part = slopes_and_value(energy, w)
            parts = [factor.sum(0) for factor in _chain(q, noise, w, gradient)]
            value = part if value is None else value + part
            slopes = [a + b for a, b in zip(slopes, parts, strict=True)] if slopes else parts
    assert value is not None
    return value / draws.num, [slope / draws.num for slope in slopes]


def slopes_and_value(function: Callable[..., Tensor], *at: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """The gradients of a scalar function in all its arguments and its value, without a graph."""
    if transformed():
        return torch.func.grad_and_value(function, tuple(range(len(at))))(*at)
    # hooks of an outer context (graph_size, save_on_cpu) are for graphs that stay; this one goes at once
    with torch.enable_grad(), saved_tensors_hooks(Tensor.detach, Tensor.detach):
        leaves = [x.detach().requires_grad_() for x in at]
        value = function(*leaves)
        gradients = torch.autograd.grad(value, leaves)
    return gradients, value.detach()


def _chain(q: Family, noise: Tensor, w: Tensor, gradient: Tensor) -> list[Tensor]:
    """g′(w) ∂w/∂coordinate for every draw."""
    if isinstance(q, LocationScale):
        return [gradient, gradient * noise]
    if isinstance(q, LogLocationScale):
        return [gradient * w, gradient * w * noise]
    return [gradient * noise if q.sign is None else gradient * q.sign * noise]
