"""Methods. Adding one: a file here and a line in METHODS."""

from collections.abc import Callable
from functools import partial

from bayesify.methods.base import Method
from bayesify.methods.deep_ensemble import DeepEnsemble
from bayesify.methods.density_propagation import DensityPropagation
from bayesify.methods.ensemble_patching import EnsemblePatching
from bayesify.methods.ivon import IVON
from bayesify.methods.mc_dropout import MCDropout
from bayesify.methods.monte_carlo_vi import MonteCarloVI
from bayesify.methods.point import Point
from bayesify.methods.swag import SWAG
from bayesify.methods.thermostat_mcmc import ThermostatMCMC
from bayesify.methods.variance_network import (
    SparseVariationalDropout,
    VarianceNetwork,
    VariationalDropout,
)
from bayesify.names import lookup

METHODS: dict[str, Callable[..., Method]] = {
    "mc_vi": MonteCarloVI,
    "ivon": IVON,
    "point": Point,
    "deep_ensemble": DeepEnsemble,
    "emp": EnsemblePatching,
    "ecmp": partial(EnsemblePatching, assignment="element"),
    "mc_dropout": MCDropout,
    "atmc": ThermostatMCMC,
    "swag": SWAG,
    "variance": VarianceNetwork,
    "vdp": DensityPropagation,
}


def method_class(name: str) -> type[Method]:
    """The class behind a name; `Method` itself, which says nothing, where nothing of that name is registered."""
    found = METHODS.get(name, Method)
    while isinstance(found, partial):
        found = found.func
    return found if isinstance(found, type) else Method


def method(name: str, **options: object) -> Method:
    """A method by name, with its options."""
    return lookup(METHODS, name, "method")(**options)


__all__ = [
    "IVON",
    "METHODS",
    "SWAG",
    "DeepEnsemble",
    "DensityPropagation",
    "EnsemblePatching",
    "MCDropout",
    "Method",
    "MonteCarloVI",
    "Point",
    "SparseVariationalDropout",
    "ThermostatMCMC",
    "VarianceNetwork",
    "VariationalDropout",
    "method",
    "method_class",
]
