"""Pairs (family, prior) with chosen options, and their KL by quadrature over the base noise."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import roots_legendre
from torch import Tensor

import bayesify as bf
from bayesify.divergences import of_prior
from bayesify.divergences.support import estimators
from bayesify.families import FAMILIES, Family, LocationScale
from bayesify.priors import PRIORS, Prior

#: wide enough to leave the start of training, with finite moments of the fourth order
FAMILY_OPTIONS: dict[str, dict[str, Any]] = {
    "exponential": {},
    "std_wald": {},
    "rayleigh": {},
    "weibull": {"concentration": 2.5},
    "erlang": {"concentration": 3},
    "gamma": {"concentration": 3.5},
    "inverse_gamma": {"concentration": 9.0},
    "log_gamma": {"concentration": 2.5},
    "exp_gamma": {"concentration": 9.0},
    "error": {"init_std": 0.4, "tail": 1.5},
    "zero_mean_error": {"tail": 1.5},
}
PRIOR_OPTIONS: dict[str, dict[str, Any]] = {
    "normal": {"mean": 0.2, "std": 0.8},
    "laplace": {"loc": 0.0, "scale": 0.7},
    "logistic": {"loc": 0.1, "scale": 0.6},
    "student_t": {"df": 3.0, "loc": 0.1, "scale": 0.5},
    "horseshoe": {"scale": 0.7},
    "error": {"scale": 0.9, "tail": 0.5},
    "normal_mixture": {"std1": 1.0, "std2": 0.3},
    "radial": {"loc": 0.1, "scale": 0.8},
    "weibull": {"scale": 0.8, "concentration": 1.7},
    "log_normal": {"loc": -0.3, "scale": 0.8},
    "pareto": {"scale": 0.9, "alpha": 2.0},
    "gamma": {"concentration": 2.5, "rate": 1.5},
}
LIKE = torch.tensor([0.7, -0.4], dtype=torch.float64)


def make_family(name: str, like: Tensor = LIKE) -> Family:
    options = FAMILY_OPTIONS.get(name, {"init_std": 0.4})
    return bf.family(name, like=like, **options).distribution()


def make_prior(name: str) -> Prior:
    return bf.prior(name, **PRIOR_OPTIONS.get(name, {})).at("", LIKE)


def estimators_of(family: str, prior: str) -> tuple[str, ...]:
    return estimators(make_family(family), make_prior(prior))[0]


PAIRS = [(f, p) for f in FAMILIES for p in PRIORS]
POSSIBLE = [(f, p) for f, p in PAIRS if estimators_of(f, p)]


def pairs_with(estimator: str) -> list[tuple[str, str]]:
    return [(f, p) for f, p in POSSIBLE if estimator in estimators_of(f, p)]


class Expectations(NamedTuple):
    """Sums over the entries of the tensor."""

    kl: float
    sampled_var: float  # of the part of log p that `repar` draws
    log_prior_var: float  # of log p itself, which `stream` draws


def like_of(family: str, prior: str) -> Tensor:
    """Two entries; one where entries are not independent, so that one integral does."""
    return LIKE if FAMILIES[family].independent and PRIORS[prior].independent else LIKE[:1]


def by_quadrature(family: str, prior: str) -> Expectations:
    """KL of `like_of` by Gauss-Legendre panels that halve towards every kink and double outwards.

    It integrates the library's own densities; test_kl_against_scipy.py holds it against scipy's.
    """
    q, p = make_family(family, like_of(family, prior)), make_prior(prior)
    with torch.no_grad():
        noise, weights = _grid(q, _kinks(q, p))
        x = torch.tensor(noise)[:, None].expand(-1, *q.shape)  # (points, entries)
        mass = torch.tensor(weights)[:, None] * _by_entry(q.noise_log_prob(x)).exp()
        assert ((mass.sum(0) - 1).abs() < 1e-6).all(), "the grid misses some of the noise's mass"
        w = q.transform(x)
        log_q, log_p = _by_entry(q.log_prob(w)), _by_entry(p.log_prob(w.abs() if p.lower >= 0 else w))
        if not p.independent:
            log_p = p.tensor_log_prob(w, 1)[:, None]
        sampled = _sampled_part(q, p, x)
        kl = _mean(mass, log_q - log_p).sum()
        return Expectations(
            float(kl), _variance(mass, log_p if sampled is None else sampled), _variance(mass, log_p)
        )


def _by_entry(values: Tensor) -> Tensor:
    """(points, entries), also for a joint density of one entry."""
    return values[:, None] if values.dim() == 1 else values


def _mean(mass: Tensor, values: Tensor) -> Tensor:
    """Σ mass · value; where there is next to no mass, a density may round to 0 and its logarithm to −inf."""
    return torch.where(mass > 1e-60, mass * values, 0.0).sum(0)


def _variance(mass: Tensor, values: Tensor) -> float:
    return float((_mean(mass, values.square()) - _mean(mass, values).square()).sum())


def _sampled_part(q: Family, p: Prior, noise: Tensor) -> Tensor | None:
    """Σ a n(θ) t(ξ) over the statistics that meet a gradient."""
    tuple_ = of_prior(q, p)
    if tuple_ is None:
        return None
    total = torch.zeros_like(noise)
    for term in tuple_.terms:
        n = term.feature(q)
        if n is not None and term.statistic is not None:
            total = total + term.coefficient * n * term.statistic(noise)
    return total


def _kinks(q: Family, p: Prior) -> list[float]:
    """Noise at which a density or its derivative is not smooth: ξ = 0, w = 0 and the prior's location."""
    points = [0.0]
    if isinstance(q, LocationScale):
        for w in (0.0, p.options.get("loc", 0.0), p.options.get("mean", 0.0)):
            points += ((w - q.loc) / q.scale).tolist()
    return sorted(set(points))


def _grid(q: Family, kinks: list[float]) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = roots_legendre(24)
    positive = not bool((q.noise((64,), torch.Generator().manual_seed(0)) < 0).any())
    reach = 2.0 ** np.arange(-60, 51)
    edges: list[float] = []
    for left, right in zip(kinks, [*kinks[1:], math.inf], strict=True):
        half = (right - left) / 2
        inner = reach[reach < half]
        edges += [left, *(left + inner)]
        edges += [] if math.isinf(right) else [left + half, *(right - inner)]
    if not positive:
        edges += [*(kinks[0] - reach)]
    cuts = np.unique(edges)
    middle, half_width = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    x = (middle[:, None] + half_width[:, None] * nodes).ravel()
    return x, (half_width[:, None] * weights).ravel()
