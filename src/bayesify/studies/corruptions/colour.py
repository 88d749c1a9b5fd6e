"""Brightness, contrast and saturation."""

import torch
from torch import Generator, Tensor


def brightness(x: Tensor, amount: float, generator: Generator) -> Tensor:
    """The value of HSV raised by `amount`."""
    hue, saturation, value = to_hsv(x)
    return from_hsv(hue, saturation, (value + amount).clamp(0, 1))


def contrast(x: Tensor, factor: float, generator: Generator) -> Tensor:
    """Distances to the mean of each channel multiplied by `factor`."""
    mean = x.mean((2, 3), keepdim=True)
    return ((x - mean) * factor + mean).clamp(0, 1)


def saturate(x: Tensor, constants: tuple[float, float], generator: Generator) -> Tensor:
    """The saturation of HSV: factor · s + shift."""
    factor, shift = constants
    hue, saturation, value = to_hsv(x)
    return from_hsv(hue, (factor * saturation + shift).clamp(0, 1), value)


def to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue in 0 … 6, saturation and value in 0 … 1, each (N, H, W)."""
    red, green, blue = x.unbind(1)
    value = x.amax(1)
    spread = value - x.amin(1)
    safe = torch.where(spread > 0, spread, 1)
    hue = torch.where(
        blue == value,
        4 + (red - green) / safe,
        torch.where(green == value, 2 + (blue - red) / safe, (green - blue) / safe),
    )
    saturation = torch.where(value > 0, spread / value.clamp_min(1e-12), 0)
    return torch.where(spread > 0, hue.remainder(6), 0), saturation, value


def from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """(N, 3, H, W): channel c = v − v s max(0, min(k, 4 − k, 1)), k = (n_c + hue) mod 6, n = 5, 3, 1."""
    channels = []
    for n in (5, 3, 1):
        k = (n + hue).remainder(6)
        channels.append(value - value * saturation * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, 1).clamp(0, 1)
