"""Priors p(w). Adding one: a class among its like and a word in KINDS."""

from typing import Any

from bayesify.names import Registry, lookup
from bayesify.priors.base import Prior, check_options
from bayesify.priors.by_tensor import FanIn, PerLayer, WeightNorm
from bayesify.priors.joint import Direction, Dirichlet, GroupLaplace, Radial
from bayesify.priors.positive import (
    ChiSquared,
    Erlang,
    Exponential,
    Gamma,
    InverseGamma,
    InverseGaussian,
    LogNormal,
    Pareto,
    Positive,
    Rayleigh,
    StdWald,
    Weibull,
)
from bayesify.priors.real import (
    Error,
    Horseshoe,
    Laplace,
    LocationScale,
    Logistic,
    LogUniform,
    Normal,
    NormalMixture,
    StudentT,
)

KINDS: tuple[type[Prior], ...] = (
    *(Normal, Laplace, Logistic, StudentT, Horseshoe, Error, NormalMixture, LogUniform, Radial),
    *(Exponential, Gamma, Erlang, ChiSquared, InverseGamma, InverseGaussian),
    *(StdWald, Rayleigh, Weibull, LogNormal, Pareto),
    *(Dirichlet, FanIn, PerLayer, Direction, GroupLaplace, WeightNorm),
)
PRIORS = Registry(Prior, {kind.name: kind for kind in KINDS})


def prior(name: str, **options: Any) -> Prior:
    """A prior by name.

    >>> prior("normal", mean=0.0, std=1.0)
    normal(mean=0.0, std=1.0)
    """
    kind = lookup(PRIORS, name, "prior")
    check_options(kind, options)
    return kind(**options)


__all__ = [
    "PRIORS",
    "ChiSquared",
    "Direction",
    "Dirichlet",
    "Erlang",
    "Error",
    "Exponential",
    "FanIn",
    "Gamma",
    "GroupLaplace",
    "Horseshoe",
    "InverseGamma",
    "InverseGaussian",
    "Laplace",
    "LocationScale",
    "LogNormal",
    "LogUniform",
    "Logistic",
    "Normal",
    "NormalMixture",
    "Pareto",
    "PerLayer",
    "Positive",
    "Prior",
    "Radial",
    "Rayleigh",
    "StdWald",
    "StudentT",
    "Weibull",
    "WeightNorm",
    "prior",
]
