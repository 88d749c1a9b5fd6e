"""Families with options, and their laws by scipy: the other opinion that the tests of this room compare with."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import integrate, special, stats

from bayesify.families import FAMILIES, Family, LogLocationScale, RandomTensor, family

FAILURE_RATE = 1e-6  # of every statistical test, at its fixed seed

LIKE = torch.tensor([[1.5, -0.7, 0.02], [-2.5, 0.4, 1.1]], dtype=torch.float64)

CASES: dict[str, list[dict[str, Any]]] = {
    "normal": [{}],
    "laplace": [{}],
    "logistic": [{}],
    "horseshoe": [{}],
    "error": [{}, {"tail": 3.0}, {"tail": 0.5}],
    "radial": [{}],
    "log_gamma": [{}, {"concentration": 0.3}],
    "log_normal": [{}, {"init_std": 1.0}],
    "exp_gamma": [{}, {"concentration": 9.5}],
    "exponential": [{}],
    "std_wald": [{}],
    "rayleigh": [{}],
    "weibull": [{}, {"concentration": 2.5}],
    "erlang": [{}, {"concentration": 3}],
    "gamma": [{}, {"concentration": 2.5}, {"concentration": 0.4}],
    "inverse_gamma": [{}, {"concentration": 3.5}, {"concentration": 0.8}],
    "zero_mean_error": [{}, {"tail": 3.0}],
}
ALL = [(name, options) for name, choices in CASES.items() for options in choices]
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in options.items()) or 'default'}" for name, options in ALL]
INDEPENDENT = [case for case in ALL if FAMILIES[case[0]].independent]
INDEPENDENT_IDS = [i for case, i in zip(ALL, IDS, strict=True) if FAMILIES[case[0]].independent]


def make(name: str, options: dict[str, Any], like: torch.Tensor = LIKE) -> RandomTensor:
    return family(name, like, **options)


def distribution(name: str, options: dict[str, Any], like: torch.Tensor = LIKE) -> Family:
    """The family without gradients."""
    with torch.no_grad():
        return make(name, options, like).requires_grad_(False).distribution()


class Law(NamedTuple):
    """A law on the line: log-density and distribution function on arrays, and its known moments."""

    logpdf: Callable[[Any], Any]
    cdf: Callable[[Any], Any]
    mean: float
    var: float
    neg_entropy: float


def scipy_law(frozen: Any) -> Law:
    return Law(frozen.logpdf, frozen.cdf, float(frozen.mean()), float(frozen.var()), -float(frozen.entropy()))


def noise_law(name: str, q: Any, loc: float = 0.0, scale: float = 1.0) -> Law:
    """The law of loc + scale ξ, of one entry."""
    k = float(getattr(q, "concentration", 1.0))
    place = {"loc": loc, "scale": scale}
    if name == "horseshoe":
        return horseshoe_law(loc, scale)
    if name == "log_gamma":
        return scipy_law(stats.loggamma(k, loc=loc - scale * special.digamma(k), scale=scale))
    if name in ("error", "zero_mean_error"):
        return scipy_law(stats.gennorm(2 / q.tail, loc=loc, scale=scale * 2 ** (q.tail / 2)))
    frozen = {
        "normal": lambda: stats.norm(**place),
        "log_normal": lambda: stats.norm(**place),
        "laplace": lambda: stats.laplace(**place),
        "logistic": lambda: stats.logistic(**place),
        "exponential": lambda: stats.expon(**place),
        "std_wald": lambda: stats.invgauss(1.0, **place),
        "rayleigh": lambda: stats.rayleigh(**place),
        "weibull": lambda: stats.weibull_min(k, **place),
        "erlang": lambda: stats.erlang(int(k), **place),
        "gamma": lambda: stats.gamma(k, **place),
        "exp_gamma": lambda: stats.gamma(k, **place),
        "inverse_gamma": lambda: stats.invgamma(k, **place),
    }[name]()
    return scipy_law(frozen)


def horseshoe_law(loc: float, scale: float) -> Law:
    """By E₁ of scipy and quadrature on a grid of log |z|."""

    def log_density(z: Any) -> Any:
        x = 0.5 * np.square(z)
        small = np.minimum(x, 500)
        series = (1 - 1 / (x + 1e-300) + 2 / (x**2 + 1e-300) - 6 / (x**3 + 1e-300)) / (x + 1e-300)
        scaled = np.where(x < 500, np.exp(small) * special.exp1(small), series)
        return np.log(scaled) - 0.5 * math.log(2 * math.pi**3)

    y = np.linspace(-50, 45, 40_001)
    mass = 2 * np.exp(log_density(np.exp(y)) + y)
    below = np.clip(integrate.cumulative_simpson(mass, x=y, initial=0), 0, 1)

    def logpdf(w: Any) -> Any:
        return log_density((np.asarray(w) - loc) / scale) - math.log(scale)

    def cdf(w: Any) -> Any:
        z = (np.asarray(w) - loc) / scale
        return 0.5 + 0.5 * np.sign(z) * np.interp(np.log(np.maximum(np.abs(z), 1e-300)), y, below)

    entropy = float(integrate.simpson(mass * log_density(np.exp(y)), x=y)) - math.log(scale)
    return Law(logpdf, cdf, loc, math.inf, entropy)


def weight_laws(name: str, q: Any) -> list[Law]:
    """The law of sign · w of every entry, in the order of `flatten`."""
    if isinstance(q, LogLocationScale):
        pairs = zip(q.loc.flatten().tolist(), q.scale.flatten().tolist(), strict=True)
        return [_exponential_of(noise_law(name, q, loc, scale), name, q, scale) for loc, scale in pairs]
    locs = getattr(q, "loc", torch.zeros(q.shape)).flatten().tolist()
    return [
        noise_law(name, q, loc, scale) for loc, scale in zip(locs, q.scale.flatten().tolist(), strict=True)
    ]


def _exponential_of(law: Law, name: str, q: Any, scale: float) -> Law:
    """The law of exp(v), v ~ law."""
    if name == "log_normal":
        return scipy_law(stats.lognorm(scale, scale=math.exp(law.mean)))
    k, theta = q.concentration, scale
    first = (1 - theta) ** -k if theta < 1 else math.inf
    var = (1 - 2 * theta) ** -k - first**2 if theta < 0.5 else math.inf
    return Law(
        lambda w: law.logpdf(np.log(w)) - np.log(w),
        lambda w: law.cdf(np.log(w)),
        first,
        var,
        law.neg_entropy - law.mean,
    )


def magnitudes(q: Family, w: torch.Tensor) -> torch.Tensor:
    """sign · w: what `weight_laws` speaks of."""
    return w if q.sign is None else q.sign * w
