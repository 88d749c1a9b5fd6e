"""Norm layers for the tape: the scaling by itself, gain and offset as the product and the sum that they are."""

from typing import Any

import torch
import torch.nn.functional as F

from bayesify.moments.carrier import Carrier

#: where weight and bias of a normalisation stand
NORMS = {
    F.layer_norm: (2, 3),
    F.group_norm: (2, 3),
    F.batch_norm: (3, 4),
    F.instance_norm: (3, 4),
    F.rms_norm: (2,),
}


def given(values: Any, named: Any, place: int, name: str, default: Any = None) -> Any:
    """An argument, by its place or its name."""
    return values[place] if place < len(values) else named.get(name, default)


def norm_in_parts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    places = dict(zip(("weight", "bias"), NORMS[func], strict=False))
    factors = [given(args, kwargs, place, name) for name, place in places.items()]
    if not any(map(is_weight, factors)):
        return None
    left_out = [None if place in places.values() else arg for place, arg in enumerate(args)]
    y = func(*left_out, **{name: value for name, value in kwargs.items() if name not in places})
    last = func in (F.layer_norm, F.rms_norm)
    operations: tuple[Any, ...] = (torch.mul, torch.add)
    for value, operation in zip(factors, operations, strict=False):
        if value is not None:
            y = operation(y, value if last else value.view((-1,) + (1,) * (y.dim() - 2)))
    return y


def is_weight(value: Any) -> bool:
    """Is it a carrier of a weight, or of something made of weights alone?"""
    return isinstance(value, Carrier) and value.is_weight
