"""Drops of water or mud on the lens."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import correlate, gaussian, normal

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
FAR = 20  # pixels beyond which the distance to an edge of a drop no longer counts


def spatter(x: Tensor, constants: tuple[float, ...], generator: Generator) -> Tensor:
    """Water (last constant 0) brightens the image, mud (1) covers it."""
    mean, std, blur, threshold, amount, mud = constants
    liquid = gaussian(normal((len(x), 1, *x.shape[-2:]), mean, std, x, generator), blur)
    liquid = torch.where(liquid < threshold, 0, liquid)
    if mud:
        cover = gaussian((liquid > threshold).to(x.dtype), amount)
        cover = torch.where(cover < 0.8, 0, cover)
        return (x * (1 - cover) + cover * _colour(MUD, x)).clamp(0, 1)
    liquid = (liquid * 255).floor().clamp(0, 255)
    drops = liquid * _relief(liquid)
    brightest = drops.amax((2, 3), keepdim=True)
    drops = amount * drops / brightest.clamp_min(1)
    return (x + drops * _colour(WATER, x)).clamp(0, 1)


def _colour(rgb: tuple[float, float, float], x: Tensor) -> Tensor:
    return torch.tensor(rgb, device=x.device, dtype=x.dtype)[:, None, None]


def _relief(liquid: Tensor) -> Tensor:
    """Light and shade of drops, (N, 1, H, W) in 0 … 255: from the distance to their edges."""
    box = torch.full((3, 3), 1 / 9)
    light = torch.tensor([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])
    distance = correlate(distance_to(edges(liquid, 50, 150)), box).floor()
    shaded = correlate(equalised(distance), light).round().clamp(0, 255)
    return correlate(shaded, box).round()


def edges(image: Tensor, low: float, high: float) -> Tensor:
    """Canny's edges of (N, 1, H, W) in 0 … 255: thin ridges of the gradient above `low`, joined to one
    above `high`."""
    smooth, slope = torch.tensor([1.0, 2, 1]), torch.tensor([-1.0, 0, 1])
    across = correlate(image, smooth[:, None] * slope, "nearest")
    down = correlate(image, slope[:, None] * smooth, "nearest")
    strength = across.abs() + down.abs()
    around = F.pad(strength, (1, 1, 1, 1))
    height, width = image.shape[-2:]

    def at(row: int, column: int) -> Tensor:
        return around[..., 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    flat, steep = down.abs() < 0.41421356 * across.abs(), down.abs() > 2.41421356 * across.abs()
    same_sign = (across * down) >= 0

    def along(step: int) -> Tensor:
        """The strength one step further across the edge."""
        diagonal = torch.where(same_sign, at(step, step), at(step, -step))
        return torch.where(flat, at(0, step), torch.where(steep, at(step, 0), diagonal))

    level = (flat | steep) & (strength == along(1))  # of two equal ones the first, but not on a diagonal
    ridge = (strength > along(-1)) & ((strength > along(1)) | level)
    weak = (ridge & (strength > low)).to(image.dtype)
    found = (ridge & (strength > high)).to(image.dtype)
    while True:
        grown = found
        for _ in range(8):  # a look at the result costs a wait on a GPU
            grown = F.max_pool2d(grown, 3, 1, 1) * weak
        if torch.equal(grown, found):
            return found
        found = grown


def distance_to(marked: Tensor) -> Tensor:
    """Euclidean distance to the nearest marked pixel, at most FAR."""
    squared = torch.where(marked > 0, 0.0, float(FAR**2))
    for axis in (-1, -2):
        size = squared.shape[axis]
        around = F.pad(squared, (FAR, FAR, 0, 0) if axis == -1 else (0, 0, FAR, FAR), value=float(FAR**2))
        for offset in range(-FAR, FAR + 1):
            moved = around.narrow(axis, FAR + offset, size) + offset**2
            squared = torch.minimum(squared, moved)
    return squared.sqrt()


def equalised(image: Tensor) -> Tensor:
    """Whole numbers in 0 … 255 spread so that each image's histogram is flat."""
    flat = image.flatten(1).long()
    ones = torch.ones_like(flat, dtype=torch.float32)
    count = torch.zeros(len(image), 256, device=image.device).scatter_add_(1, flat, ones)
    below = count.cumsum(1)
    first = (count > 0).to(torch.uint8).argmax(1, keepdim=True)  # the darkest value there is
    darkest = count.gather(1, first)
    total = flat.shape[1]
    table = ((below - darkest) * (255 / (total - darkest).clamp_min(1))).round().clamp(0, 255)
    table = torch.where(darkest == total, first.to(table.dtype), table)  # one value only: it stays
    return table.gather(1, flat).view(image.shape).to(image.dtype)
