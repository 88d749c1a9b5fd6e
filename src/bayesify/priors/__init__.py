"""Priors p(w), one per file. Adding one: a file here and a line in PRIORS."""

from typing import Any

from bayesify.names import lookup
from bayesify.priors.base import Prior
from bayesify.priors.normal import Normal

PRIORS: dict[str, type[Prior]] = {"normal": Normal}


def prior(name: str, **options: Any) -> Prior:
    """A prior by name.

    >>> prior("normal", mean=0.0, std=1.0)
    normal(mean=0.0, std=1.0)
    """
    return lookup(PRIORS, name, "prior")(**options)


__all__ = ["PRIORS", "Normal", "Prior", "prior"]
