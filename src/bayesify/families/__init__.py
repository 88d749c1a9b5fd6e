"""Families q(w). Adding one: a class among its like and a word in KINDS."""

from typing import Any

from torch import Tensor

from bayesify.families.base import Family, RandomTensor
from bayesify.families.location_scale import LocationScale, Normal
from bayesify.families.log_location_scale import ExpGamma, LogLocationScale, LogNormal
from bayesify.families.real import Error, Horseshoe, Laplace, LogGamma, Logistic, Radial
from bayesify.families.scale import (
    Erlang,
    Exponential,
    Gamma,
    InverseGamma,
    Rayleigh,
    Scale,
    ShapedScale,
    StdWald,
    Weibull,
)
from bayesify.families.zero_mean import ZeroMean, ZeroMeanError
from bayesify.laws.noise import standard_normal
from bayesify.names import Registry, lookup

KINDS: tuple[type[Family], ...] = (
    *(Normal, Laplace, Logistic, Horseshoe, Error, Radial, LogGamma),
    *(LogNormal, ExpGamma),
    *(Exponential, StdWald, Rayleigh, Weibull, Erlang, Gamma, InverseGamma),
    ZeroMeanError,
)
FAMILIES = Registry(Family, {kind.name: kind for kind in KINDS})

#: what the positive families, those with |w| in their line, have in common; shown wherever families are listed
NOTE = (
    "Positive families model the magnitude; each weight keeps the sign of its initial value as a constant. They are "
    + ", ".join(name for name, kind in FAMILIES.items() if kind.support != "real")
    + "."
)


def family(name: str, like: Tensor, **options: Any) -> RandomTensor:
    """A random tensor of the shape of `like`, centred on its values.

    >>> q = family("normal", like=torch.zeros(3))
    >>> q.rsample(5).shape
    torch.Size([5, 3])
    """
    if not isinstance(like, Tensor) or not like.is_floating_point():
        raise TypeError(f"like={like!r} must be a floating-point tensor: it gives the shape and the centre")
    return RandomTensor(lookup(FAMILIES, name, "family"), like, own_centre=True, **options)


__all__ = [
    "FAMILIES",
    "NOTE",
    "Erlang",
    "Error",
    "ExpGamma",
    "Exponential",
    "Family",
    "Gamma",
    "Horseshoe",
    "InverseGamma",
    "Laplace",
    "LocationScale",
    "LogGamma",
    "LogLocationScale",
    "LogNormal",
    "Logistic",
    "Normal",
    "Radial",
    "RandomTensor",
    "Rayleigh",
    "Scale",
    "ShapedScale",
    "StdWald",
    "Weibull",
    "ZeroMean",
    "ZeroMeanError",
    "family",
    "standard_normal",
]
