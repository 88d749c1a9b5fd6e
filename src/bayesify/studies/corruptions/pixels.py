"""Every number by itself: noise of sensors, of few photons and of dead pixels; brightness, contrast and saturation."""

import torch
from torch import Generator, Tensor

from bayesify.studies.corruptions.filters import normal


def gaussian_noise(x: Tensor, std: float, generator: Generator) -> Tensor:
    """x + std · ε, as in low light."""
    return (x + normal(tuple(x.shape), 0, std, x, generator)).clamp(0, 1)


def shot_noise(x: Tensor, photons: float, generator: Generator) -> Tensor:
    """Poisson(photons · x) / photons: few photons are much noise."""
    return (torch.poisson(x * photons, generator=generator) / photons).clamp(0, 1)


def impulse_noise(x: Tensor, share: float, generator: Generator) -> Tensor:
    """A share of the numbers becomes 0 or 1, each as often: salt and pepper."""
    hit, salt = (torch.rand(x.shape, generator=generator, device=x.device) for _ in range(2))
    return torch.where(hit < share, (salt < 0.5).to(x.dtype), x)


def speckle_noise(x: Tensor, std: float, generator: Generator) -> Tensor:
    """x + std · x ε: noise that grows with brightness."""
    return (x + x * normal(tuple(x.shape), 0, std, x, generator)).clamp(0, 1)


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
