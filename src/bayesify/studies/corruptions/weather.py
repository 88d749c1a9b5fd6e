"""Fog, frost and snow."""

import torch
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import motion, normal, uniform, zoomed


def fog(x: Tensor, constants: tuple[float, float], generator: Generator) -> Tensor:
    """A cloud of the given thickness over the image, brightness kept; a larger decay is a smoother cloud."""
    thickness, decay = constants
    brightest = x.amax((1, 2, 3), keepdim=True)
    cloud = plasma(len(x), x.shape[-2:], decay, x, generator)[:, None]
    return ((x + thickness * cloud) * brightest / (brightest + thickness)).clamp(0, 1)


def plasma(
    batch: int, size: tuple[int, ...] | torch.Size, decay: float, like: Tensor, generator: Generator
) -> Tensor:
    """Height maps in 0 … 1 by the diamond–square algorithm on a torus, (batch, H, W)."""
    side = 1 << (max(size) - 1).bit_length()  # the next power of two
    heights = torch.zeros(batch, side, side, device=like.device, dtype=like.dtype)
    step, rough = side, 100.0

    def middle(total: Tensor) -> Tensor:
        return total / 4 + rough * uniform(tuple(total.shape), -rough, rough, like, generator)

    while step >= 2:
        half = step // 2
        corner = heights[:, ::step, ::step]
        square = corner + corner.roll(-1, 1)
        heights[:, half::step, half::step] = middle(square + square.roll(-1, 2))
        centre = heights[:, half::step, half::step]
        heights[:, ::step, half::step] = middle(centre + centre.roll(1, 1) + corner + corner.roll(-1, 2))
        heights[:, half::step, ::step] = middle(centre + centre.roll(1, 2) + corner + corner.roll(-1, 1))
        step, rough = half, rough / decay
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    heights = (heights - low) / (high - low).clamp_min(torch.finfo(like.dtype).tiny)
    return heights[:, : size[0], : size[1]]


def frost(
    x: Tensor, constants: tuple[float, float], generator: Generator, photographs: Tensor | None = None
) -> Tensor:
    """The image dimmed and ice added to it.

    The published sets take the ice from six photographs, which are not ours to ship: by default it is made
    up (`ice`), with their range of brightness and colour, so numbers differ a little from the published ones.

    photographs: (M, 3, h, w) in 0 … 1, at least as large as the images: random cuts of these instead.
    """
    keep, amount = constants
    layer = ice(x, generator) if photographs is None else _cuts(photographs.to(x), x, generator)
    return (keep * x + amount * layer).clamp(0, 1)


def ice(x: Tensor, generator: Generator) -> Tensor:
    """Made-up frost (N, 3, H, W): bright veins on clouds, tinted blue."""
    clouds = plasma(len(x), x.shape[-2:], 1.6, x, generator)
    veins = torch.zeros_like(clouds)
    for decay in (1.2, 1.3, 1.4):
        ridge = 1 - (2 * plasma(len(x), x.shape[-2:], decay, x, generator) - 1).abs()  # 1 on a level line
        veins = torch.maximum(veins, ridge.pow(6))
    base = uniform((len(x), 1, 1), 0.1, 0.6, x, generator)  # from dark to bright panes
    grey = base + 0.25 * clouds + 0.2 * veins
    tint = uniform((len(x), 1, 1), 0.02, 0.12, x, generator)
    return torch.stack([grey - tint, grey, grey + 0.6 * tint], 1).clamp(0, 1)


def _cuts(photographs: Tensor, x: Tensor, generator: Generator) -> Tensor:
    """A random cut of a random photograph for each image."""
    height, width = x.shape[-2:]
    if photographs.dim() != 4 or photographs.shape[-2] < height or photographs.shape[-1] < width:
        raise ValueError(
            f"photographs {tuple(photographs.shape)} must be (M, 3, h, w), at least as large as the images "
            f"{height}×{width}"
        )
    limits = (len(photographs), photographs.shape[-2] - height + 1, photographs.shape[-1] - width + 1)
    draw = torch.rand((len(x), 3), generator=generator, device=x.device)
    which = (draw * torch.tensor(limits, device=x.device)).long().tolist()
    return torch.stack([photographs[m, :, r : r + height, c : c + width] for m, r, c in which])


def snow(x: Tensor, constants: tuple[float, ...], generator: Generator) -> Tensor:
    """Whitened, with flakes: thresholded noise, enlarged and blurred downwards, and once more upside down."""
    mean, std, zoom, threshold, radius, blur, keep = constants
    layer = normal((len(x), 1, *x.shape[-2:]), mean, std, x, generator)
    layer = zoomed(layer, zoom)
    layer = torch.where(layer < threshold, 0, layer).clamp(0, 1)
    layer = motion(layer, int(radius), blur, uniform((len(x),), -135, -45, x, generator))
    layer = (layer * 255).round() / 255
    grey = (x * torch.tensor([0.299, 0.587, 0.114], device=x.device)[:, None, None]).sum(1, keepdim=True)
    whitened = keep * x + (1 - keep) * torch.maximum(x, 1.5 * grey + 0.5)
    return (whitened + layer + layer.flip(-2, -1)).clamp(0, 1)
