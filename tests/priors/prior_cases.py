"""Options of every registered prior, and for independent numbers the same density by scipy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats

from bayesify.priors import PRIORS

# name -> options and the same density by scipy, for priors of independent numbers
LAWS: dict[str, list[tuple[dict[str, Any], Callable[[Any], Any]]]] = {
    "normal": [({}, stats.norm().logpdf), ({"mean": 0.5, "std": 2.0}, stats.norm(0.5, 2.0).logpdf)],
    "laplace": [
        ({}, stats.laplace().logpdf),
        ({"loc": -0.3, "scale": 2.0}, stats.laplace(-0.3, 2.0).logpdf),
    ],
    "logistic": [({"loc": 0.3, "scale": 0.5}, stats.logistic(0.3, 0.5).logpdf)],
    "student_t": [({"df": 2.5, "loc": 0.3, "scale": 0.5}, stats.t(2.5, 0.3, 0.5).logpdf)],
    "horseshoe": [({"scale": 0.7}, lambda w: horseshoe(w / 0.7) - math.log(0.7))],
    "error": [
        ({"scale": 0.7, "tail": 3.0}, stats.gennorm(2 / 3, scale=0.7 * 2**1.5).logpdf),
        ({"loc": 0.2, "scale": 0.7, "tail": 0.5}, stats.gennorm(4, loc=0.2, scale=0.7 * 2**0.25).logpdf),
        ({"loc": 0.2, "tail": 2.0}, stats.gennorm(1, loc=0.2, scale=2).logpdf),
    ],
    "normal_mixture": [
        (
            {"mix": 0.3, "std1": 1.5, "std2": 0.1},
            lambda w: np.log(0.3 * stats.norm(0, 1.5).pdf(w) + 0.7 * stats.norm(0, 0.1).pdf(w)),
        )
    ],
    "exponential": [({"rate": 2.0}, stats.expon(scale=0.5).logpdf)],
    "gamma": [
        ({"concentration": 2.5, "rate": 3.0}, stats.gamma(2.5, scale=1 / 3).logpdf),
        ({"concentration": 0.4}, stats.gamma(0.4).logpdf),
    ],
    "erlang": [({"concentration": 3, "rate": 2.0}, stats.erlang(3, scale=0.5).logpdf)],
    "chi_squared": [({"df": 3.0}, stats.chi2(3).logpdf)],
    "inverse_gamma": [({"concentration": 2.5, "rate": 3.0}, stats.invgamma(2.5, scale=3).logpdf)],
    "inverse_gaussian": [({"loc": 1.5, "concentration": 2.0}, stats.invgauss(0.75, scale=2).logpdf)],
    "std_wald": [({}, stats.invgauss(1).logpdf)],
    "rayleigh": [({"scale": 0.7}, stats.rayleigh(scale=0.7).logpdf)],
    "weibull": [({"scale": 0.7, "concentration": 2.5}, stats.weibull_min(2.5, scale=0.7).logpdf)],
    "log_normal": [({"loc": 0.3, "scale": 0.5}, stats.lognorm(0.5, scale=math.exp(0.3)).logpdf)],
    "pareto": [({"scale": 0.7, "alpha": 2.5}, stats.pareto(2.5, scale=0.7).logpdf)],
    "log_uniform": [({}, lambda w: -np.log(np.abs(w)))],
}
JOINT = {
    "radial": {"loc": 0.2, "scale": 0.7},
    "dirichlet": {"concentration": [0.5, 2.0, 3.0]},
    "direction": {"flat": 1.0},
    "group_laplace": {"scale": 2.0},
}
BY_TENSOR: dict[str, dict[str, Any]] = {
    "fan_in": {"gain": 2.0, "bias_std": 0.3},
    "weight_norm": {"scale": 2.0, "bias_std": 0.3, "flat": 1.0},
    "per_layer": {"rules": {"bias$": "laplace", "^conv": {"prior": "fan_in", "options": {"gain": 3.0}}}},
}
CASES = [(name, options, law) for name, choices in LAWS.items() for options, law in choices]
OPTIONS = [
    *[(name, options) for name, options, _ in CASES],
    *JOINT.items(),
    *BY_TENSOR.items(),
    *[(name, {}) for name in PRIORS],
]


def horseshoe(w: Any) -> Any:
    x = 0.5 * np.square(w)
    return x + np.log(special.exp1(x)) - 0.5 * math.log(2 * math.pi**3)
