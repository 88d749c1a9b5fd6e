"""Interpolation: separable linear maps, whose weights are squared for the variance."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.registry import rule
from bayesify.moments.values import Moments


@rule(F.interpolate, F.upsample)
def interpolate(
    x: Moments,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Moments:
    """y = Σ a x along each dimension in turn: Var y = Σ a² Var x; nearest neighbours only move entries."""
    options = {"align_corners": align_corners, "recompute_scale_factor": recompute_scale_factor}
    mean = F.interpolate(x.mean, size, scale_factor, mode, **options, antialias=antialias)
    if mode.startswith("nearest"):
        return Moments(mean, F.interpolate(x.var, size, scale_factor, mode))
    var = x.var
    dims = x.mean.dim() - 2
    for i in range(dims):
        one = {"size": _entry(size, i), "scale_factor": _entry(scale_factor, i)}
        matrix = _weights(x.var, x.var.shape[2 + i], mode, antialias, {**one, **options})
        var = torch.tensordot(var, matrix.square(), dims=([2 + i], [1])).movedim(-1, 2 + i)
    return Moments(mean, var)


def _entry(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, list | tuple | torch.Size) else value


def _weights(like: Tensor, size: int, mode: str, antialias: bool, options: dict[str, Any]) -> Tensor:
    """The (outputs, inputs) matrix along one dimension: what interpolation makes of unit vectors."""
    unit = torch.eye(size, dtype=like.dtype, device=like.device)
    if mode == "area" or (mode.endswith("linear") and not antialias):
        way = "area" if mode == "area" else "linear"
        return F.interpolate(unit[None], mode=way, **options)[0].T
    sizes = {
        "size": None if options["size"] is None else (options["size"], 2),
        "scale_factor": None if options["scale_factor"] is None else (options["scale_factor"], 1.0),
    }
    # (1, channel = unit vector, entries, 2): at width 1 torch mistakes the layout and antialiases wrongly
    plane = unit[None, :, :, None].repeat(1, 1, 1, 2)
    mode = "bicubic" if mode == "bicubic" else "bilinear"
    return F.interpolate(plane, mode=mode, antialias=antialias, **{**options, **sizes})[0, :, :, 0].T
