"""The patches a convolution sees, by index: entry l of the patch at position i stands at one place of the input."""

from typing import Any

import torch
from torch import Tensor

from bayesify.moments.rules.pool import per_dimension


def patches(x: Tensor, kernel: torch.Size, geometry: Any) -> Tensor:
    """(batch, channels, *spatial) -> (batch, groups, positions, patch), zeros where a patch leaves the input."""
    index, inside = _places(x.shape, kernel, geometry, x.device)  # (positions, offsets)
    flat = x.flatten(2)[:, :, index] * inside.to(x.dtype)  # (batch, channels, positions, offsets)
    grouped = flat.unflatten(1, (geometry[3], -1))  # (batch, groups, channels, positions, offsets)
    return grouped.transpose(2, 3).flatten(3)


def patches_of_covariance(
    shape: torch.Size, cov: Tensor, s: Tensor, kernel: torch.Size, geometry: Any
) -> Tensor:
    """Σ_l s_kl Cov(x_il, x_jl) for every kernel k: (batch, groups, kernels, positions, positions)."""
    index, inside = _places(shape, kernel, geometry, cov.device)
    places = shape[2:].numel()
    groups, per_group = s.shape[0], kernel[1]
    valid = (inside[:, None] & inside[None, :]).to(cov.dtype)  # (i, j, offset)
    totals = []
    for g in range(groups):
        total: Any = 0
        for c in range(per_group):
            start = (g * per_group + c) * places
            for o in range(index.shape[1]):
                at = start + index[:, o]
                pair = cov[:, at][:, :, at] * valid[:, :, o]  # (batch, i, j)
                total = total + s[g, :, c * index.shape[1] + o, None, None] * pair[:, None]
        totals.append(total)
    return torch.stack(totals, 1)


def _places(
    shape: torch.Size, kernel: torch.Size, geometry: Any, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Place in the flattened input, and whether there is one: (positions, offsets in the kernel) each."""
    dims = len(shape) - 2
    if isinstance(geometry[1], str):
        raise NotImplementedError(f"full covariance needs padding as numbers, not {geometry[1]!r}")
    stride, padding, dilation = (per_dimension(value, dims) for value in geometry[:3])
    index: Any = torch.zeros(1, 1, dtype=torch.long, device=device)
    inside: Any = torch.ones(1, 1, dtype=torch.bool, device=device)
    for d in range(dims):
        size, width = shape[2 + d], kernel[2 + d]
        count = (size + 2 * padding[d] - dilation[d] * (width - 1) - 1) // stride[d] + 1
        start = torch.arange(count, device=device)[:, None] * stride[d] - padding[d]
        offset = torch.arange(width, device=device)[None] * dilation[d]
        place = start + offset  # (positions along d, offsets along d)
        valid = (place >= 0) & (place < size)
        index = index[:, None, :, None] * size + place.clamp(0, size - 1)[None, :, None, :]
        inside = inside[:, None, :, None] & valid[None, :, None, :]
        index, inside = index.flatten(0, 1).flatten(1, 2), inside.flatten(0, 1).flatten(1, 2)
    return index, inside
