"""Families q(w), one per file. Adding one: a file here and a line in FAMILIES."""

from typing import Any

from torch import Tensor

from bayesify.families.base import Family, RandomTensor, inside_functorch, standard_normal
from bayesify.families.normal import Normal
from bayesify.names import lookup

FAMILIES: dict[str, type[Family]] = {"normal": Normal}


def family(name: str, like: Tensor, **options: Any) -> RandomTensor:
    """A random tensor of the shape of `like`, centred on its values.

    >>> q = family("normal", like=torch.zeros(3))
    >>> q.rsample(5).shape
    torch.Size([5, 3])
    """
    if not isinstance(like, Tensor) or not like.is_floating_point():
        raise TypeError(f"like={like!r} must be a floating-point tensor: it gives the shape and the centre")
    return RandomTensor(lookup(FAMILIES, name, "family"), like, own_centre=True, **options)


__all__ = ["FAMILIES", "Family", "Normal", "RandomTensor", "family", "inside_functorch", "standard_normal"]
