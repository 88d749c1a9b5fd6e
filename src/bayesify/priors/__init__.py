"""Priors p(w), one per file. Adding one: a file here and a line in PRIORS."""

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

PRIORS: dict[str, type[Prior]] = {
    "normal": Normal,
    "laplace": Laplace,
    "logistic": Logistic,
    "student_t": StudentT,
    "horseshoe": Horseshoe,
    "error": Error,
    "normal_mixture": NormalMixture,
    "log_uniform": LogUniform,
    "radial": Radial,
    "exponential": Exponential,
    "gamma": Gamma,
    "erlang": Erlang,
    "chi_squared": ChiSquared,
    "inverse_gamma": InverseGamma,
    "inverse_gaussian": InverseGaussian,
    "std_wald": StdWald,
    "rayleigh": Rayleigh,
    "weibull": Weibull,
    "log_normal": LogNormal,
    "pareto": Pareto,
    "dirichlet": Dirichlet,
    "fan_in": FanIn,
    "per_layer": PerLayer,
    "direction": Direction,
    "group_laplace": GroupLaplace,
    "weight_norm": WeightNorm,
}
PRIORS = Registry(Prior, PRIORS)


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
