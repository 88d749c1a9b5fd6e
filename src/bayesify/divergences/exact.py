"""`exact`: the tuple with every statistic replaced by its expectation (M = ∞), and closed forms beyond the tuples."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify import families, priors
from bayesify.divergences.faddeeva import log_one_plus
from bayesify.divergences.log_uniform import kl_to_log_uniform
from bayesify.divergences.parameterization import expand, of_terms
from bayesify.divergences.statistics import Draws, expected
from bayesify.families.base import Family
from bayesify.families.log_location_scale import LogLocationScale
from bayesify.laws import Terms
from bayesify.laws.features import Feature
from bayesify.laws.real import LOG_MEAN
from bayesify.priors.base import Prior

#: closed forms of pairs (family, prior), which come before the general way
EXACT: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def exact(q: Family, p: Prior, draws: Draws) -> Tensor:
    """KL(q ‖ p) without Monte Carlo."""
    closed = closed_form_of(q, p)
    if closed is not None:
        return closed(q, p)
    cross = expected_log_prob(q, p)
    if cross is None:
        raise ValueError(
            f"there is no closed form of the KL between the {q.name} family and the {p.name} prior: "
            f"use estimator='auto'"
        )
    return q.neg_entropy() - cross


def expected_log_prob(q: Family, p: Prior) -> Tensor | None:
    """E log p(w), summed over the tensor, with gradients; None where one of its features has no closed form."""
    terms = p.terms() if p.independent else None
    if terms is None:
        return None
    magnitude = p.lower >= 0
    inside = {f: c for f, c in terms.coefficients.items() if expand(q, f, magnitude) is not None}
    tuple_ = of_terms(q, Terms(terms.constant, inside), magnitude)
    assert tuple_ is not None
    means = expected(q, [*tuple_.statistics, *tuple_.free_statistics])
    if means is None:
        return None
    total = tuple_.combine(q, means)
    for feature, coefficient in terms.coefficients.items():
        if feature not in inside:
            moment = _moment(q, feature, magnitude)
            if moment is None:
                return None
            total = total + coefficient * moment.sum()
    return total


def _moment(q: Family, feature: Feature, magnitude: bool) -> Tensor | None:
    """E w^p = sign^p exp(p loc + log E e^{p scale ξ}) where log |w| = loc + scale ξ."""
    if not isinstance(q, LogLocationScale) or feature.kind == "log":
        return None
    p = feature.power
    size = (p * q.loc + q.noise_log_mgf(p * q.scale)).exp()
    return q.sign * size if feature.kind == "power" and p % 2 and not magnitude else size


def has_closed_form(q: Family, p: Prior) -> bool:
    """Does `exact` take this pair?"""
    if closed_form_of(q, p) is not None:
        return True
    terms = p.terms() if p.independent else None
    if terms is None:
        return False
    for feature in terms.coefficients:
        parts = expand(q, feature, p.lower >= 0)
        if parts is None and not (isinstance(q, LogLocationScale) and feature.kind != "log"):
            return False
        if any(t.statistic is not None and q.expectation(t.statistic) is None for t in parts or []):
            return False
    return True


def closed_form_of(q: Family, p: Prior) -> Callable[[Any, Any], Tensor] | None:
    """The closed form of the pair, or of the family and the prior that they are special cases of."""
    pairs = ((family, prior) for family in type(q).__mro__ for prior in type(p).__mro__)
    return next((EXACT[pair] for pair in pairs if pair in EXACT), None)


def closed_form(family: type, prior: type) -> Callable[[Callable], Callable]:
    """Register the exact KL of a pair."""

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        EXACT[family, prior] = function
        return function

    return register


@closed_form(families.Normal, priors.Normal)
def normal_normal(q: families.Normal, p: priors.Normal) -> Tensor:
    """Σ log(s/σ) + (σ² + (μ − m)²) / (2 s²) − ½, with q = N(μ, σ²) and p = N(m, s²)."""
    centred = q.loc - p.loc if p.loc else q.loc
    quadratic = (q.variance + centred.square()) / (2 * p.std**2)
    return (quadratic - q.log_scale).sum() + q.loc.numel() * (math.log(p.std) - 0.5)


@closed_form(families.Normal, priors.Laplace)
def normal_laplace(q: families.Normal, p: priors.Laplace) -> Tensor:
    """E |w − m| = d erf(d/(σ√2)) + σ √(2/π) exp(−d²/(2σ²)), d = μ − m."""
    z = (q.loc - p.loc) / (math.sqrt(2) * q.scale)
    distance = math.sqrt(2) * q.scale * (z * torch.erf(z) + (-z.square()).exp() / math.sqrt(math.pi))
    return _to_laplace(q, p, distance)


@closed_form(families.Laplace, priors.Laplace)
def laplace_laplace(q: families.Laplace, p: priors.Laplace) -> Tensor:
    """E |w − m| = |d| + b exp(−|d|/b), d = μ − m."""
    d = (q.loc - p.loc).abs()
    return _to_laplace(q, p, d + q.scale * (-d / q.scale).exp())


@closed_form(families.Logistic, priors.Laplace)
def logistic_laplace(q: families.Logistic, p: priors.Laplace) -> Tensor:
    """E |w − m| = |d| + 2s log(1 + exp(−|d|/s)), d = μ − m."""
    d = (q.loc - p.loc).abs()
    return _to_laplace(q, p, d + 2 * q.scale * (-d / q.scale).exp().log1p())


def _to_laplace(q: Family, p: priors.Laplace, distance: Tensor) -> Tensor:
    return q.neg_entropy() + distance.sum() / p.scale + distance.numel() * math.log(2 * p.scale)


@closed_form(families.Normal, priors.LogUniform)
def normal_log_uniform(q: families.Normal, p: priors.LogUniform) -> Tensor:
    """2 ∫₀^{√u} D(s) ds, u = μ²/(2σ²) (log_uniform.py), with the constant of the improper prior.

    At μ = 0: E log q + E log |w| = −½ log 2πe − ½ (γ + log 2), for every σ.
    """
    at_zero = q.noise_neg_entropy() + LOG_MEAN
    u = 0.5 * (q.loc / q.scale).square()
    return kl_to_log_uniform(u).sum() + u.numel() * (at_zero - p.log_constant)


@closed_form(families.Normal, priors.StudentT)
def normal_student(q: families.Normal, p: priors.StudentT) -> Tensor:
    """E log(1 + (w − m)²/(ν s²)) = E log(1 + (t − x)²/y²), x = (m − μ)/(√2 σ), y = √(ν/2) s/σ, t ~ N(0, ½)."""
    wide = torch.promote_types(q.loc.dtype, torch.float32)
    scale = q.scale.to(wide)
    x = (p.loc - q.loc.to(wide)) / (math.sqrt(2) * scale)
    y = math.sqrt(p.df / 2) * p.scale / scale
    tail = 0.5 * (p.df + 1) * log_one_plus(x, y).sum()
    return q.neg_entropy() + tail - x.numel() * float(p.log_prob(torch.tensor(p.loc, dtype=torch.float64)))
