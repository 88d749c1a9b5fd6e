"""Building blocks on batches of images (N, C, H, W): blurs as matrices, sampling, zooming, motion."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def folded(index: Tensor, size: int, mode: str) -> Tensor:
    """Indices outside 0 … size − 1 brought inside: "nearest" a a|abc|c c, "reflect" b a|abc|c b,
    "mirror" c b|abc|b a."""
    if mode == "nearest":
        return index.clamp(0, size - 1)
    if mode == "mirror" and size == 1:
        return torch.zeros_like(index)
    period = 2 * size if mode == "reflect" else 2 * size - 2
    index = index.remainder(period)
    return torch.where(index < size, index, period - index - (1 if mode == "reflect" else 0))


def padded(x: Tensor, radius: int, mode: str = "mirror") -> Tensor:
    """`radius` more pixels on every side."""
    for axis in (-2, -1):
        index = torch.arange(-radius, x.shape[axis] + radius, device=x.device)
        x = x.index_select(axis, folded(index, x.shape[axis], mode))
    return x


def bell(first: int, last: int, std: float) -> Tensor:
    """Gaussian weights of the offsets `first` … `last`, with sum 1."""
    offset = torch.arange(first, last + 1, dtype=torch.float64)
    weight = torch.exp(-0.5 * (offset / std).square()) if std > 0 else (offset == 0).double()
    return weight / weight.sum()


def gaussian_matrix(size: int, std: float, truncate: float, mode: str) -> Tensor:
    """The Gaussian filter of scipy along one axis, borders included, as a matrix (size, size)."""
    radius = int(truncate * std + 0.5)
    rows = torch.arange(size)[:, None].expand(-1, 2 * radius + 1)
    columns = folded(rows + torch.arange(-radius, radius + 1), size, mode)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    weight = bell(-radius, radius, std).expand(size, -1)
    return matrix.index_put_((rows, columns), weight, accumulate=True)


def gaussian(x: Tensor, std: float, truncate: float = 4.0, mode: str = "nearest") -> Tensor:
    """Gaussian blur with standard deviation `std` pixels; 0 leaves the image as it is."""
    rows, columns = (gaussian_matrix(size, std, truncate, mode).to(x) for size in x.shape[-2:])
    return rows @ x @ columns.T


def correlate(x: Tensor, kernel: Tensor, mode: str = "mirror") -> Tensor:
    """Every channel filtered with one kernel (k, k), k odd."""
    radius = kernel.shape[0] // 2
    channels = x.shape[1]
    weight = kernel.to(x).expand(channels, 1, *kernel.shape)
    return F.conv2d(padded(x, radius, mode), weight, groups=channels)


def defocused(x: Tensor, radius: float, smooth: float) -> Tensor:
    """Through a lens out of focus: a disk of `radius` pixels, its edge smoothed by a Gaussian of std `smooth`."""
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    inside = (line[:, None].square() + line.square() <= radius**2).double()
    weight = bell(-taps, taps, smooth)
    kernel = correlate((inside / inside.sum())[None, None], weight[:, None] * weight)[0, 0]
    used = int((kernel.abs().sum(0) > 0).nonzero().sub(reach).abs().max())  # zeros around it cost time
    part = slice(reach - used, reach + used + 1)
    return correlate(x, kernel[part, part])


def sample(x: Tensor, rows: Tensor, columns: Tensor, mode: str) -> Tensor:
    """Bilinear values at (rows, columns), each (N, H′, W′) in pixels; outside as `folded` says."""
    height, width = x.shape[-2:]
    result = torch.zeros((), device=x.device)
    low_row, low_column = rows.floor(), columns.floor()
    for down in (0, 1):
        for right in (0, 1):
            row, column = low_row + down, low_column + right
            weight = (1 - (rows - row).abs()) * (1 - (columns - column).abs())
            index = folded(row.long(), height, mode) * width + folded(column.long(), width, mode)
            result = result + weight[:, None] * take(x, index)
    return result


def take(x: Tensor, index: Tensor) -> Tensor:
    """The pixels of each image at `index` (N, H′, W′) into its flattened positions."""
    flat = index.flatten(1)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, flat).unflatten(2, index.shape[1:])


def positions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every pixel, (1, H, W) each."""
    lines = [torch.arange(size, device=x.device, dtype=x.dtype) for size in (1, *x.shape[-2:])]
    _, rows, columns = torch.meshgrid(*lines, indexing="ij")
    return rows, columns


def zoomed(x: Tensor, factor: float) -> Tensor:
    """The middle of the image, enlarged bilinearly by `factor` and cut to the old size."""
    height, width = x.shape[-2:]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = x[..., top : top + rows, left : left + columns]
    size = (round(rows * factor), round(columns * factor))
    large = F.interpolate(middle, size=size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return large[..., top : top + height, left : left + width]


def motion(x: Tensor, radius: int, std: float, angle: Tensor) -> Tensor:
    """Motion along a line that starts at each pixel, weights falling like a Gaussian.

    Args:
        radius: the line has 2 · radius + 1 pixels.
        std: of the weights, in pixels.
        angle: (N,) in degrees, one per image.
    """
    rows, columns = (p.long() for p in positions(x))
    height, breadth = x.shape[-2:]
    down, right = torch.sin(torch.deg2rad(angle)), torch.cos(torch.deg2rad(angle))
    blurred = torch.zeros_like(x)
    for i, w in enumerate(bell(0, 2 * radius, std).tolist()):
        dy, dx = (-torch.ceil(i * step - 0.5).long()[:, None, None] for step in (down, right))
        index = (rows - dy).clamp(0, height - 1) * breadth + (columns - dx).clamp(0, breadth - 1)
        blurred = blurred + w * take(x, index)
    return blurred


def as_bytes(x: Tensor) -> Tensor:
    """Whole numbers 0 … 255, cut off behind the point; 1e-3 keeps 254.9999 from becoming 254."""
    return (x * 255 + 1e-3).floor()


def uniform(shape: tuple[int, ...], low: float, high: float, like: Tensor, generator: Generator) -> Tensor:
    """Numbers in low … high on the device of `like`."""
    return low + (high - low) * torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)


def normal(shape: tuple[int, ...], mean: float, std: float, like: Tensor, generator: Generator) -> Tensor:
    """Normal numbers on the device of `like`."""
    return mean + std * torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)
