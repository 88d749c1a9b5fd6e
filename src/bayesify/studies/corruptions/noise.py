"""Noise in every number: of sensors, of few photons, of dead pixels."""

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
