"""Sampling at places of a grid, as spatial transformers do; image and grid may both be random."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule
from bayesify.moments.values import Moments, parts


@rule(F.affine_grid)
def affine_grid(theta: Moments, size: Any, align_corners: bool | None = None) -> Moments:
    """Places θ·(x, y, 1):  Var = Σ Var θ · (x, y, 1)²."""
    dims = theta.mean.shape[-2]
    same = torch.eye(dims, dims + 1, dtype=theta.mean.dtype, device=theta.mean.device)
    base = F.affine_grid(same.expand_as(theta.mean), size, align_corners)  # (batch, ..., dims)
    square = torch.cat([base, torch.ones_like(base[..., :1])], -1).square()
    var = torch.einsum("b...j,bij->b...i", square, theta.var)
    return Moments(F.affine_grid(theta.mean, size, align_corners), var)


@rule(F.grid_sample)
def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Moments:
    """y = Σ a x, a products of 1 − t and t in each dimension, t the place between two neighbours:

    Var y = Σ a² Var x + Σ_d (∂y/∂g_d)² Var g_d, to first order in the grid g (nearest neighbours do not depend on it).
    Squares (1 − t)² and t² are s(1 − u) and s u, s their sum: interpolation at u, times s.
    """
    if mode == "bicubic":
        raise NotImplementedError(not_covered(F.grid_sample, "mode='bicubic'"))
    (mean, var), (g, g_var) = parts(x), parts(grid)
    y = F.grid_sample(mean, g, mode, padding_mode, align_corners)
    if mode == "nearest":
        v = torch.zeros_like(y) if var is None else F.grid_sample(var, g, mode, padding_mode, align_corners)
        return Moments(y, v)
    sizes = mean.shape[:1:-1]  # the grid's first number goes along the last dimension
    places = [_place(g[..., d], n, padding_mode, bool(align_corners)) for d, n in enumerate(sizes)]
    low = [place.floor() for place in places]
    v = torch.zeros_like(y)
    if var is not None:
        t = [place - start for place, start in zip(places, low, strict=True)]
        s = [(1 - a).square() + a.square() for a in t]
        inside = [start + a.square() / b for start, a, b in zip(low, t, s, strict=True)]
        v = _at(var, inside) * torch.stack(s).prod(0).unsqueeze(1)
    if g_var is not None:
        for d, n in enumerate(sizes):
            ends = [_at(mean, [*places[:d], end, *places[d + 1 :]]) for end in (low[d] + 1, low[d])]
            speed = (n - 1 if align_corners else n) / 2  # places per unit of the grid
            moving = torch.ones_like(places[d])
            if padding_mode != "zeros":  # clipped places stand still
                moving = ((places[d] > 0) & (places[d] < n - 1)).to(y.dtype)
            v = v + (speed * (ends[0] - ends[1])).square() * (moving * g_var[..., d]).unsqueeze(1)
    return Moments(y, v)


def _place(g: Tensor, n: int, padding: str, corners: bool) -> Tensor:
    """From −1 … 1 to 0 … n − 1, clipped or reflected as torch does."""
    place = (g + 1) / 2 * (n - 1) if corners else ((g + 1) * n - 1) / 2
    if padding == "zeros":
        return place
    if padding == "reflection":
        start, length = (0.0, n - 1) if corners else (-0.5, n)
        beyond = (place - start).abs() % max(2 * length, 1)
        place = torch.minimum(beyond, 2 * length - beyond) + start
    return place.clamp(0, n - 1)


def _at(image: Tensor, places: list[Tensor]) -> Tensor:
    """Linear interpolation at places counted from 0, zeros outside."""
    grid = [(2 * place + 1) / n - 1 for place, n in zip(places, image.shape[:1:-1], strict=True)]
    return F.grid_sample(image, torch.stack(grid, -1), "bilinear", "zeros", False)
