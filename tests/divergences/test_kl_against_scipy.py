"""The KL of chosen pairs from scipy's densities alone: nothing of the library's own densities enters the reference."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from kl_pairs import by_quadrature, estimators_of, make_family, make_prior
from scipy import integrate, special, stats

import bayesify as bf

#: scipy's law of one weight's magnitude, or of the weight itself, for its coordinates and the options of kl_pairs
FAMILIES: dict[str, Callable[[float, float], Any]] = {
    "normal": lambda loc, scale: stats.norm(loc, scale),
    "laplace": lambda loc, scale: stats.laplace(loc, scale),
    "logistic": lambda loc, scale: stats.logistic(loc, scale),
    "error": lambda loc, scale: stats.gennorm(2 / 1.5, loc, scale * 2 ** (1.5 / 2)),
    "log_gamma": lambda loc, scale: stats.loggamma(2.5, loc - special.digamma(2.5)),
    "log_normal": lambda loc, scale: stats.lognorm(scale, scale=math.exp(loc)),
    "exponential": lambda loc, scale: stats.expon(scale=scale),
    "std_wald": lambda loc, scale: stats.invgauss(1.0, scale=scale),
    "rayleigh": lambda loc, scale: stats.rayleigh(scale=scale),
    "weibull": lambda loc, scale: stats.weibull_min(2.5, scale=scale),
    "gamma": lambda loc, scale: stats.gamma(3.5, scale=scale),
    "inverse_gamma": lambda loc, scale: stats.invgamma(9.0, scale=scale),
}
#: the priors with the options of kl_pairs
PRIORS: dict[str, Any] = {
    "normal": stats.norm(0.2, 0.8),
    "laplace": stats.laplace(0.0, 0.7),
    "logistic": stats.logistic(0.1, 0.6),
    "student_t": stats.t(3.0, 0.1, 0.5),
    "error": stats.gennorm(4.0, 0.0, 0.9 * 2**0.25),
    "exponential": stats.expon(),
    "gamma": stats.gamma(2.5, scale=1 / 1.5),
    "inverse_gaussian": stats.invgauss(1.0),
    "rayleigh": stats.rayleigh(),
    "weibull": stats.weibull_min(1.7, scale=0.8),
    "log_normal": stats.lognorm(0.8, scale=math.exp(-0.3)),
}
PAIRS = [
    *(("normal", "normal"), ("normal", "laplace"), ("normal", "student_t"), ("normal", "logistic")),
    *(("laplace", "error"), ("laplace", "laplace"), ("logistic", "student_t"), ("logistic", "laplace")),
    *(("error", "normal"), ("log_gamma", "normal"), ("log_gamma", "logistic")),
    *(("log_normal", "weibull"), ("log_normal", "log_normal"), ("exponential", "gamma")),
    *(("std_wald", "exponential"), ("rayleigh", "rayleigh"), ("weibull", "log_normal")),
    *(("gamma", "gamma"), ("gamma", "normal"), ("gamma", "logistic"), ("inverse_gamma", "inverse_gaussian")),
]


def by_scipy(family: str, prior: str) -> float:
    """Σ_j ∫ q_j (log q_j − log p) over the mass of q_j, in parts that end where a density has a kink."""
    q, p, total = make_family(family), PRIORS[prior], 0.0
    scales = q.scale.tolist()  # type: ignore[attr-defined]
    locs = getattr(q, "loc", torch.zeros(q.shape)).tolist()
    signs = [1.0] * len(scales) if q.sign is None else q.sign.tolist()
    positive = p.support()[0] == 0
    for loc, scale, sign in zip(locs, scales, signs, strict=True):
        law = FAMILIES[family](loc, scale)

        def integrand(x: float, law: Any = law, sign: float = sign) -> float:
            return law.pdf(x) * (law.logpdf(x) - p.logpdf(x if positive else sign * x))

        low, high = law.support()
        reach = [
            law.ppf(1e-30) if low == -np.inf else low,
            *law.ppf([1e-6, 0.01, 0.5, 0.99]),
            *law.isf([1e-6, 1e-30]),
        ]
        kinks = [x for x in (0.0, loc) if reach[0] < x < reach[-1]]
        ends = sorted({*(x for x in reach if x < high), *kinks})
        total += sum(integrate.quad(integrand, a, b, limit=400, epsabs=1e-12)[0] for a, b in pairwise(ends))
    return total


@pytest.mark.parametrize(("family", "prior"), PAIRS)
def test_the_kl_from_scipy_s_densities(family: str, prior: str) -> None:
    """Of the quadrature that the other tests compare with, and of the closed form where there is one."""
    expected = by_scipy(family, prior)
    assert by_quadrature(family, prior).kl == pytest.approx(expected, rel=1e-7, abs=1e-7)
    if "exact" in estimators_of(family, prior):
        assert bf.kl(make_family(family), make_prior(prior), "exact").item() == pytest.approx(
            expected, rel=1e-7, abs=1e-7
        )
