"""The corruptions of ImageNet-C and CIFAR-10-C, batched in torch: 15 and 4 more, at five severities.

Adding one: a function (x, constants, generator) and its Corruption, with the constants of both sizes, in the table.
The constants are those of Hendrycks and Dietterich, 2019 ("Benchmarking Neural Network Robustness to Common
Corruptions and Perturbations"); motion is drawn as in the package imagecorruptions, not by ImageMagick, and
the ice of `frost` is made up (see there).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.checks import checked
from bayesify.names import lookup
from bayesify.studies.corruptions import blur, compression, elastic, pixels, spatter, weather
from bayesify.studies.corruptions.filters import as_bytes
from bayesify.studies.corruptions.shift import add_noise, rotate

SEVERITIES = (1, 2, 3, 4, 5)
LARGE = 96  # from this many pixels a side on the constants of ImageNet-C
SMALLEST = 16  # smaller images are enlarged first


@dataclass(frozen=True)
class Corruption:
    """A function of (images, constants, generator) and its constants at severities 1 … 5."""

    function: Callable[[Tensor, Any, Generator], Tensor]
    small: tuple[Any, ...]  # CIFAR-10-C, 32×32
    large: tuple[Any, ...]  # ImageNet-C, 224×224
    extra: bool = False  # one of the four outside the fifteen that mCE averages

    @property
    def about(self) -> str:
        """One line for `bayesify show corruptions`."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """The constants, for `bayesify show corruptions NAME`."""
        return {"small": self.small, "large": self.large}


def _elastic(side: int, *rows: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(side * value for value in row) for row in rows)


_ALL = (
    Corruption(pixels.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)),
    Corruption(pixels.shot_noise, (500, 250, 100, 75, 50), (60, 25, 12, 5, 3)),
    Corruption(pixels.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)),
    Corruption(
        blur.defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    Corruption(
        blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    Corruption(
        blur.motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    Corruption(
        blur.zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    Corruption(
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    Corruption(
        weather.frost,
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    Corruption(
        weather.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    ),
    Corruption(pixels.brightness, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    Corruption(pixels.contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    Corruption(
        elastic.elastic_transform,
        _elastic(
            32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
        ),
        _elastic(
            244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
        ),
    ),
    Corruption(compression.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25)),
    Corruption(compression.jpeg_compression, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
    Corruption(pixels.speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.35, 0.45, 0.6), extra=True),
    Corruption(blur.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1), (1, 2, 3, 4, 6), extra=True),
    Corruption(
        spatter.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        extra=True,
    ),
    Corruption(
        pixels.saturate,
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        extra=True,
    ),
)
CORRUPTIONS = {each.function.__name__: each for each in _ALL}

#: the fifteen that CIFAR-10-C and ImageNet-C results average
COMMON = tuple(name for name, entry in CORRUPTIONS.items() if not entry.extra)


@checked
def corrupt(
    images: Tensor, name: str, severity: int, generator: Generator | None = None, sizes: str | None = None
) -> Tensor:
    """A batch of images with one corruption, in the type and range that they came in.

    Args:
        images: (N, C, H, W), uint8 or floating in 0 … 1, before normalisation. Grey images (C = 1) are
            corrupted as colour images with equal channels, and averaged.
        name: a key of CORRUPTIONS.
        severity: 1 … 5; 0 gives the images back.
        generator: on the images' device; without it draws are the same at every call.
        sizes: "small" (CIFAR-10-C's constants), "large" (ImageNet-C's); by default large from 96 pixels on.
            Sides below 16 pixels are repeated to at least 32 first, and averaged back.

    >>> corrupt(torch.rand(2, 3, 32, 32), "fog", severity=3).shape
    torch.Size([2, 3, 32, 32])
    """
    entry = lookup(CORRUPTIONS, name, "corruption")
    _check(images, severity)
    if severity == 0 or len(images) == 0:
        return images
    if generator is None:
        generator = Generator(images.device).manual_seed(0)
    if sizes is None:
        sizes = "large" if min(images.shape[-2:]) >= LARGE else "small"
    constants = lookup(entry.options, sizes, "sizes")[severity - 1]
    whole = images.dtype == torch.uint8
    x = images.float() / 255 if whole else images.float()
    factor = 1 if min(x.shape[-2:]) >= SMALLEST else -(-32 // min(x.shape[-2:]))
    x = x.expand(-1, 3, -1, -1)
    if factor > 1:
        x = x.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    x = entry.function(x, constants, generator)
    x = F.avg_pool2d(x, factor) if factor > 1 else x
    x = x.mean(1, keepdim=True) if images.shape[1] == 1 else x
    return as_bytes(x).to(torch.uint8) if whole else x.to(images.dtype)


def _check(images: Tensor, severity: int) -> None:
    if severity not in (0, *SEVERITIES):
        raise ValueError(f"severity={severity!r} must be one of 0, 1, 2, 3, 4, 5")
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images have shape {tuple(images.shape)}: give (N, 1, H, W) or (N, 3, H, W)")
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise ValueError(f"images are {images.dtype}: give uint8, or floating numbers from 0 to 1")
    if images.numel() and not (images.amin() >= 0 and images.amax() <= 1):
        raise ValueError(
            f"images go from {float(images.amin()):g} to {float(images.amax()):g}: corruptions come before "
            f"normalisation, on numbers from 0 to 1"
        )


__all__ = ["COMMON", "CORRUPTIONS", "SEVERITIES", "Corruption", "add_noise", "corrupt", "rotate"]
