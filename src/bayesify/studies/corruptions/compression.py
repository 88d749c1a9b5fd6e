"""JPEG and coarse pixels."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import as_bytes

# annex K of the JPEG standard, at quality 50
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *[(99,) * 8] * 4,
)


def jpeg_compression(x: Tensor, quality: int, generator: Generator) -> Tensor:
    """What a JPEG file of this quality leaves of the image, colours at half resolution."""
    height, width = x.shape[-2:]
    red, green, blue = as_bytes(x).unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = 128 + torch.stack([(blue - luma) / 1.772, (red - luma) / 1.402], 1).round()
    luma = _coded(luma.round()[:, None], LUMINANCE, quality)
    chroma = F.pad(chroma, (0, width % 2, 0, height % 2), mode="replicate")
    chroma = F.avg_pool2d(chroma, 2)
    # libjpeg rounds halves down and up in turn along a row
    turn = 0.125 * torch.where(torch.arange(chroma.shape[-1], device=x.device) % 2 == 0, -1.0, 1.0)
    chroma = (chroma + turn).round()
    chroma = _coded(chroma, CHROMINANCE, quality)
    chroma = _enlarged(chroma)[..., :height, :width] - 128
    cb, cr = chroma.unbind(1)
    y = luma[:, 0]
    rgb = torch.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], 1)
    return rgb.round().clamp(0, 255) / 255


def _coded(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Planes (N, C, H, W) in 0 … 255 after cosine transform, rounding and back, in 8×8 blocks."""
    height, width = planes.shape[-2:]
    scale = 5000 / quality if quality < 50 else 200 - 2 * quality
    steps = ((torch.tensor(table, dtype=torch.float64) * int(scale) + 50) / 100).floor().clamp(1, 255)
    steps, cosines = steps.to(planes), _cosines().to(planes)
    padded = F.pad(planes, (0, -width % 8, 0, -height % 8), mode="replicate") - 128
    blocks = padded.unfold(2, 8, 8).unfold(3, 8, 8)  # (N, C, H/8, W/8, 8, 8)
    coefficients = cosines @ blocks @ cosines.T
    coefficients = _rounded(coefficients / steps) * steps
    blocks = (cosines.T @ coefficients @ cosines + 128).round().clamp(0, 255)
    whole = blocks.permute(0, 1, 2, 4, 3, 5).reshape(padded.shape)
    return whole[..., :height, :width]


def _rounded(x: Tensor) -> Tensor:
    """To the nearest whole number, halves away from zero, as libjpeg does; 1e-4 covers float error."""
    return x.sign() * (x.abs() + 0.5 + 1e-4).floor()


def _cosines() -> Tensor:
    """The orthonormal discrete cosine transform of 8 numbers, (8, 8)."""
    n = torch.arange(8, dtype=torch.float64)
    matrix = torch.cos(math.pi * (2 * n + 1) * n[:, None] / 16) / 2
    matrix[0] /= math.sqrt(2)
    return matrix


def _enlarged(x: Tensor) -> Tensor:
    """Twice the size; every new pixel takes 3/4 of the nearest and 1/4 of the next, along both axes."""
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False).round()


def pixelate(x: Tensor, share: float, generator: Generator) -> Tensor:
    """Means over the pixels of a coarser grid, and back to the old size by repeating them."""
    height, width = x.shape[-2:]
    rows, columns = (_boxes(s, int(s * share)).to(x) for s in (height, width))
    coarse = (as_bytes(x) @ columns.T + 0.5).floor()  # a file of bytes between the two steps
    coarse = (rows @ coarse + 0.5).floor().clamp(0, 255) / 255
    back = [((torch.arange(s, device=x.device) + 0.5) * int(s * share) / s).long() for s in (height, width)]
    return coarse.index_select(2, back[0]).index_select(3, back[1])


def _boxes(size: int, coarse: int) -> Tensor:
    """(coarse, size): the weights of the old pixels whose centres lie in each new pixel."""
    if coarse < 1:
        raise ValueError(f"pixelate cannot bring {size} pixels to less than one: take larger images")
    ratio = size / coarse
    centre = (torch.arange(coarse, dtype=torch.float64) + 0.5)[:, None] * ratio
    offset = (torch.arange(size, dtype=torch.float64) + 0.5 - centre) / ratio
    inside = ((offset > -0.5) & (offset <= 0.5)).double()
    return inside / inside.sum(1, keepdim=True)
