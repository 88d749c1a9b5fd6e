"""Norm layers for the tape: the scaling by itself, gain and offset as the product and the sum that they are."""

from typing import Any

import torch
import torch.nn.functional as F

from bayesify.moments.carrier import Carrier
from bayesify.moments.values import Moments, parts

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


def normed_alike(values: Any, named: Any, known: Moments, primal: Any, cast: Any) -> Moments:
    """Batch norm by the gain that it had, of this batch or of the running statistics, which have moved by now."""
    mean, gamma = parts(primal[0])[0], given(primal, named, 3, "weight")
    shape = (1, -1) + (1,) * (mean.dim() - 2)
    if given(primal, named, 5, "training", False) or given(primal, named, 2, "running_var") is None:
        variance = mean.var((0, *range(2, mean.dim())), correction=0)
    else:
        variance = given(primal, named, 2, "running_var")
    gain = (variance + given(primal, named, 7, "eps", 1e-5)).rsqrt()
    gain = gain if gamma is None else parts(gamma)[0] * gain
    return Moments(cast(known.mean) + cast(gain.view(shape)) * (values[0].mean - cast(mean)), known.var)


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
