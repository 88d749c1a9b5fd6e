"""Methods. Adding one: a file here and a line in METHODS."""

from collections.abc import Callable

from bayesify.methods.base import Method
from bayesify.methods.deep_ensemble import DeepEnsemble
from bayesify.methods.monte_carlo_vi import MonteCarloVI
from bayesify.methods.point import Point
from bayesify.names import lookup

METHODS: dict[str, Callable[..., Method]] = {
    "mc_vi": MonteCarloVI,
    "point": Point,
    "deep_ensemble": DeepEnsemble,
}


def method(name: str, **options: object) -> Method:
    """A method by name, with its options."""
    return lookup(METHODS, name, "method")(**options)


__all__ = ["METHODS", "DeepEnsemble", "Method", "MonteCarloVI", "Point", "method"]
