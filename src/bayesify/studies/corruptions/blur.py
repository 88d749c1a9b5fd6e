"""Blurs: out of focus, through frosted glass, by motion, by zooming."""

import numpy as np
import torch
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import as_bytes, defocused, gaussian, motion, take, uniform, zoomed


def gaussian_blur(x: Tensor, std: float, generator: Generator) -> Tensor:
    """Gaussian blur of `std` pixels."""
    return gaussian(x, std).clamp(0, 1)


def defocus_blur(x: Tensor, constants: tuple[float, float], generator: Generator) -> Tensor:
    """A disk of the given radius, its edge smoothed by a Gaussian of the given std."""
    return defocused(x, *constants).clamp(0, 1)


def glass_blur(x: Tensor, constants: tuple[float, int, int], generator: Generator) -> Tensor:
    """Blur, let pixels take the value of a near one, blur again.

    From the lower right on, every pixel takes the value of one up to `reach` above and left of it or
    `reach` − 1 below and right of it, which may have changed before: as in the published sets. Pixels
    whose choices cannot touch each other are done at once (a skewed sweep), with the same result.
    """
    std, reach, rounds = constants
    x = as_bytes(gaussian(x, std)) / 255
    batch, _, height, width = x.shape
    source = torch.arange(height * width, device=x.device).expand(batch, -1).clone()  # (N, H · W)
    for _ in range(rounds):
        shift = torch.randint(-reach, reach, (2, batch, height * width), generator=generator, device=x.device)
        shift[0] *= width
        for index in _sweep(height, width, reach, x.device):  # (k,) positions that do not touch
            place = index.expand(batch, -1)
            near = place + shift[0].gather(1, place) + shift[1].gather(1, place)
            source.scatter_(1, place, source.gather(1, near))
    return gaussian(take(x, source.unflatten(1, (height, width))), std).clamp(0, 1)


def _sweep(height: int, width: int, reach: int, device: torch.device) -> list[Tensor]:
    """Pixels from `reach` before the end down to `reach` + 1 in raster order, grouped: time = skew · row + column.

    With skew 2 · reach + 1 pixels of equal time are too far apart to touch each other, and everything
    that a pixel depends on has an earlier time.
    """
    skew = 2 * reach + 1
    rows, columns = (np.arange(size - reach, reach, -1) for size in (height, width))
    time = -skew * rows[:, None] - columns  # (rows, columns)
    index = rows[:, None] * width + columns
    order = np.argsort(time, axis=None, kind="stable")
    flat, starts = index.ravel()[order], np.flatnonzero(np.diff(time.ravel()[order])) + 1
    return list(torch.tensor_split(torch.from_numpy(flat).to(device), starts.tolist()))


def motion_blur(x: Tensor, constants: tuple[int, float], generator: Generator) -> Tensor:
    """Motion in a direction between −45° and 45°, another for each image."""
    radius, std = constants
    return motion(x, radius, std, uniform((len(x),), -45, 45, x, generator)).clamp(0, 1)


def zoom_blur(x: Tensor, constants: tuple[float, float], generator: Generator) -> Tensor:
    """The mean of the image and of its enlargements by 1, 1 + step, …, below the limit."""
    limit, step = constants
    factors = np.arange(1, limit, step).tolist()
    total = sum((zoomed(x, factor) for factor in factors), x)
    return (total / (len(factors) + 1)).clamp(0, 1)
