"""Priors p(w), one per file. Adding one: a file here and a line in PRIORS."""

from typing import Any

from bayesify.names import lookup
from bayesify.priors.base import Prior, check_options
from bayesify.priors.chi_squared import ChiSquared
from bayesify.priors.direction import Direction
from bayesify.priors.dirichlet import Dirichlet
from bayesify.priors.erlang import Erlang
from bayesify.priors.error import Error
from bayesify.priors.exponential import Exponential
from bayesify.priors.fan_in import FanIn
from bayesify.priors.gamma import Gamma
from bayesify.priors.group_laplace import GroupLaplace
from bayesify.priors.horseshoe import Horseshoe
from bayesify.priors.inverse_gamma import InverseGamma
from bayesify.priors.inverse_gaussian import InverseGaussian
from bayesify.priors.laplace import Laplace
from bayesify.priors.log_normal import LogNormal
from bayesify.priors.log_uniform import LogUniform
from bayesify.priors.logistic import Logistic
from bayesify.priors.normal import Normal
from bayesify.priors.normal_mixture import NormalMixture
from bayesify.priors.pareto import Pareto
from bayesify.priors.per_layer import PerLayer
from bayesify.priors.radial import Radial
from bayesify.priors.rayleigh import Rayleigh
from bayesify.priors.std_wald import StdWald
from bayesify.priors.student_t import StudentT
from bayesify.priors.weibull import Weibull
from bayesify.priors.weight_norm import WeightNorm

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
    "Dirichlet",
    "Erlang",
    "Error",
    "Exponential",
    "FanIn",
    "Gamma",
    "Horseshoe",
    "InverseGamma",
    "InverseGaussian",
    "Laplace",
    "LogNormal",
    "LogUniform",
    "Logistic",
    "Normal",
    "NormalMixture",
    "Pareto",
    "PerLayer",
    "Prior",
    "Radial",
    "Rayleigh",
    "StdWald",
    "StudentT",
    "Weibull",
    "prior",
]
