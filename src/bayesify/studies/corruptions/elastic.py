"""Stretching: a random affine map, then a smooth random displacement."""

import torch
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import gaussian, positions, sample, uniform


def elastic_transform(x: Tensor, constants: tuple[float, float, float], generator: Generator) -> Tensor:
    """Constants: displacement, its smoothness and the affine map's shift of three points, in pixels."""
    amount, smooth, affine = constants
    if affine > 0:
        x = _affine(x, affine, generator)
    rows, columns = positions(x)
    moves = uniform((2, len(x), *x.shape[-2:]), -1, 1, x, generator)
    moves = amount * gaussian(moves, smooth, truncate=3.0, mode="reflect")
    return sample(x, rows + moves[0], columns + moves[1], "reflect").clamp(0, 1)


def _affine(x: Tensor, shift: float, generator: Generator) -> Tensor:
    """The map that moves three corners of the middle square by up to `shift` pixels in each direction."""
    height, width = x.shape[-2:]
    reach = min(height, width) // 3
    row, column = height // 2, width // 2
    corners = [[row + reach, column + reach], [row + reach, column - reach], [row - reach, column - reach]]
    before = torch.tensor(corners, device=x.device, dtype=x.dtype).expand(len(x), 3, 2)
    after = before + uniform((len(x), 3, 2), -shift, shift, x, generator)
    ones = torch.ones_like(after[..., :1])
    back = torch.linalg.solve(torch.cat([after, ones], -1), before)  # (N, 3, 2): where a pixel comes from
    rows, columns = positions(x)
    place = torch.stack([rows, columns, torch.ones_like(rows)], -1)  # (1, H, W, 3)
    source = place @ back[:, None]  # (N, H, W, 2)
    return sample(x, source[..., 0], source[..., 1], "mirror")
