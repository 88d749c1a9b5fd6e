"""`taylor`: a polynomial of order K in place of a log-density that is none (paper 1, §4.1, Theorem 3).

With x = loc + scale ξ and g(x) = log p(x), or log p(sign eˣ) for families with log |w| = x, about a point a:

    g(x) ≈ Σ_{k ≤ K} g⁽ᵏ⁾(a)/k! (x − a)ᵏ,    (x − a)ᵏ = Σ_j binom(k, j) (loc − a)^{k−j} scaleʲ ξʲ

a is a number (d_P = binom(K + 2, 2) − 1) or the location itself (about="mean", d_P = K + 1). The series converges
where |x − a| is less than the distance from a to the nearest singularity of g in the complex plane; a draw outside
raises.
The derivatives come from autograd of autograd, whose cost grows fast with K: K ≤ 6 is practical.
(The paper's Example 1 prints the series of e^{w−1}; right is log w = Σ_{k ≥ 1} (−1)^{k+1} (w − 1)ᵏ/k.)
"""

import cmath
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.checks import check_positive_whole
from bayesify.divergences.parameterization import of_prior
from bayesify.divergences.repar import log_density
from bayesify.divergences.statistics import Draws, chunks
from bayesify.execution import compiling
from bayesify.families.base import Family
from bayesify.families.location_scale import LocationScale
from bayesify.families.log_location_scale import LogLocationScale
from bayesify.laws.features import Feature
from bayesify.priors.base import Prior

Point = float | str  # a number, or "mean"
COMPILED = (
    "estimator='taylor' differentiates derivatives of the log-density, which compiled code cannot: use kl='stream' "
    "(the same KL, without truncation), or do not compile the model"
)


def taylor(q: Family, p: Prior, draws: Draws, order: int = 4, about: Point = "mean") -> Tensor:
    """E log q(w) − 1/M Σ g_K(x_i), g_K the Taylor polynomial of log p of degree `order` about the point `about`."""
    check_taylor(order, about)
    if compiling():
        raise ValueError(COMPILED)
    # a compiler that gave up on this function would still compile what it calls
    if "torch._dynamo" in sys.modules:
        return torch.compiler.disable(_taylor)(q, p, draws, order, about)
    return _taylor(q, p, draws, order, about)


def _taylor(q: Family, p: Prior, draws: Draws, order: int, about: Point) -> Tensor:
    reason = refusal(q, p)
    if reason is not None:
        raise ValueError(f"estimator='taylor' {reason}")
    assert isinstance(q, LocationScale | LogLocationScale)
    means, reach = _statistics(q, draws, order, about)
    _check_convergence(q, p, reach, about)
    cross = taylor_mean(q, lambda x: _log_density(q, p, x), means, about).sum()
    return log_density(q, draws) - cross


def taylor_mean(
    q: LocationScale | LogLocationScale,
    g: Callable[[Tensor], Tensor],
    means: Sequence[Tensor | float],
    about: Point = "mean",
) -> Tensor:
    """The mean of g's Taylor polynomial for given means of ξ⁰, …, ξᴷ, elementwise, with gradients.

    >>> q = Normal(torch.tensor(2.0), torch.tensor(0.3).log())
    >>> taylor_mean(q, torch.log, [q.expectation(power(k)) for k in range(5)])
    tensor(0.6815)
    """
    loc, scale = q.loc, q.scale
    order = len(means) - 1
    point = loc if about == "mean" else torch.full_like(loc, float(about))
    slopes = _derivatives(g, point, order)
    total = torch.zeros_like(loc)
    for j in range(order + 1):
        shifted = slopes[j] / math.factorial(j)
        for k in range(j + 1, order + 1) if about != "mean" else ():
            offset = (loc - float(about)) ** (k - j)
            shifted = shifted + slopes[k] / math.factorial(k) * math.comb(k, j) * offset
        total = total + shifted * scale**j * means[j]
    return total


def check_taylor(order: int = 4, about: Point = "mean") -> None:
    """Refuse options that the Taylor polynomial has not."""
    check_positive_whole(order, "order", ": the degree of the Taylor polynomial")
    if about != "mean" and (isinstance(about, str) or not math.isfinite(about)):
        raise ValueError(f"about={about!r} must be 'mean' or a number: the point of expansion")


def refusal(q: Family, p: Prior) -> str | None:
    """Why the pair has no Taylor estimator; None where it has one."""
    if not isinstance(q, LocationScale | LogLocationScale):
        return f"needs w or log |w| = loc + scale ξ, which the {q.name} family is not: use estimator='auto'"
    if of_prior(q, p) is not None:
        return (
            f"is not needed: the {q.name} family and the {p.name} prior have a tuple; use estimator='repar'"
        )
    if not p.independent:
        return f"needs independent entries, which the {p.name} prior has not: use estimator='stream'"
    if _singularities(p) is None:
        return f"does not know where the series of the {p.name} prior converges: use estimator='stream'"
    return None


def _singularities(p: Prior) -> Sequence[complex] | None:
    """Those of a sum of features, else what the prior knows."""
    terms = p.terms()
    if terms is not None:
        return [] if all(_entire(feature) for feature in terms.coefficients) else [0j]
    return p.singularities()


def _entire(feature: Feature) -> bool:
    """Is the feature a polynomial?"""
    p = feature.power
    return p >= 0 and p == int(p) and (feature.kind == "power" or (feature.kind == "abs" and p % 2 == 0))


def _log_density(q: Family, p: Any, x: Tensor) -> Tensor:
    """log p at w = x or ± eˣ."""
    w = x
    if isinstance(q, LogLocationScale):
        w = x.exp() if p.lower >= 0 or q.sign is None else q.sign * x.exp()
    return p.log_prob(w)


def _derivatives(g: Callable[[Tensor], Tensor], point: Tensor, order: int) -> list[Tensor]:
    """g, g′, …, g⁽ᴷ⁾ at the point, elementwise, with gradients where the point has one."""
    with torch.enable_grad():
        x = point if point.requires_grad else point.detach().requires_grad_()
        values = [g(x)]
        for _ in range(order):
            last = values[-1]
            next_ = torch.autograd.grad(last.sum(), x, create_graph=True)[0] if last.requires_grad else None
            values.append(torch.zeros_like(x) if next_ is None else next_)
    return values if point.requires_grad else [value.detach() for value in values]


def _statistics(
    q: LocationScale | LogLocationScale, draws: Draws, order: int, about: Point
) -> tuple[list[Tensor], Tensor]:
    """The means of ξ⁰ … ξᴷ over the draws, and the largest |x − a| of each entry."""
    with torch.no_grad():
        loc, scale = q.loc, q.scale
        offset = torch.zeros_like(loc) if about == "mean" else loc - float(about)
        sums = [torch.zeros_like(loc) for _ in range(order + 1)]
        reach = torch.zeros_like(loc)
        for noise in chunks(q, draws):
            power_ = torch.ones_like(noise)
            for j in range(order + 1):
                sums[j] = sums[j] + power_.sum(0)
                power_ = power_ * noise
            reach = torch.maximum(reach, (offset + scale * noise).abs().amax(0))
        return [s / draws.num for s in sums], reach


def _check_convergence(q: LocationScale | LogLocationScale, p: Prior, reach: Tensor, about: Point) -> None:
    """Raise where a draw lies outside the disc of convergence."""
    with torch.no_grad():
        point = q.loc if about == "mean" else torch.full_like(q.loc, float(about))
        outside = reach >= _radius(q, p, point)
    if outside.any():
        share = outside.double().mean().item()
        raise ValueError(
            f"estimator='taylor' about {about!r} does not converge: {100 * share:.3g} % of the weights have draws "
            f"beyond the nearest singularity of the {p.name} prior's log-density: use estimator='stream', another "
            f"`about`, or a smaller scale"
        )


def _radius(q: Family, p: Prior, point: Tensor) -> Tensor:
    """The distance from the point to the nearest singularity."""
    radius = torch.full_like(point, math.inf)
    for z in _singularities(p) or []:
        if not isinstance(q, LogLocationScale):
            radius = torch.minimum(radius, _distance(point, z))
        elif z != 0 and q.sign is not None:  # eˣ has no zero
            plus, minus = _distance(point, cmath.log(z)), _distance(point, cmath.log(-z))
            radius = torch.minimum(radius, torch.where(q.sign > 0, plus, minus))
    return radius


def _distance(point: Tensor, z: complex) -> Tensor:
    return torch.hypot(point - z.real, torch.full_like(point, z.imag))
