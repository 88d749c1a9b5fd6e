"""The log-gamma law: definition (i) of "log-gamma", centred."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_gamma, standard_uniform

SHIFT = 8  # asymptotic series are taken at k + SHIFT


@dataclass
class LogGamma(Law):
    """ξ = log Gamma(k, 1) − ψ(k), of mean 0: log p(ξ) = k (ξ + ψ(k)) − e^{ξ + ψ(k)} − log Γ(k), k a tensor."""

    concentration: Tensor

    def log_density(self, x: Tensor) -> Tensor:
        """−k (e^y − 1 − y) − ½ log(2π/k) − …, y = ξ + ψ(k) − log k = log(Gamma/k)."""
        y = x + drift(self.concentration)
        return -self.concentration * (y.expm1() - y) + log_peak(self.concentration)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """log Gamma(k) = log Gamma(k + 1) + log(u)/k, which does not underflow for small k."""
        k = self.concentration
        ratio = standard_gamma(k + 1, shape, like, generator) / k
        return ratio.log() + standard_uniform(shape, like, generator).log() / k - drift(k)

    def neg_entropy(self) -> Tensor:
        """k ψ(k) − log Γ(k) − k (FORMULAS 2.1)."""
        return self.concentration * drift(self.concentration) + log_peak(self.concentration)

    def moment(self, p: float) -> float | Tensor | None:
        """E ξ² = ψ₁(k)."""
        if p <= -1:
            return math.inf
        return torch.polygamma(1, self.concentration) if p == 2 else None

    def odd_moment(self, p: float) -> float | Tensor | None:
        """E ξ = 0, E ξ³ = ψ₂(k)."""
        if p == 1:
            return 0.0
        return torch.polygamma(2, self.concentration) if p == 3 else self.moment(p)


def drift(k: Tensor) -> Tensor:
    """ψ(k) − log k, without cancellation for large k (≈ −1/(2k))."""
    y = k + SHIFT
    series = -0.5 / y - (1 / 12 - (1 / 120 - 1 / (252 * y**2)) / y**2) / y**2
    return (SHIFT / k).log1p() - sum(1 / (k + i) for i in range(SHIFT)) + series


def log_peak(k: Tensor) -> Tensor:
    """k log k − k − log Γ(k), without cancellation for large k (≈ ½ log(k/2π))."""
    y = k.clamp(min=SHIFT)
    large = 0.5 * (y / (2 * math.pi)).log() - (1 / 12 - (1 / 360 - 1 / (1260 * y**2)) / y**2) / y
    small = k.clamp(max=SHIFT)
    return torch.where(k < SHIFT, small * small.log() - small - torch.lgamma(small), large)
