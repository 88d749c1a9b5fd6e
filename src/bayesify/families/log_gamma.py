"""The log-gamma family: definition (i) of "log-gamma"."""

import math
from typing import ClassVar

import torch
from torch import Generator, Tensor

from bayesify.families.base import Start, positive
from bayesify.families.location_scale import LocationScale, root_mean_square
from bayesify.families.noise import standard_gamma, standard_uniform
from bayesify.laws.features import Feature, power
from bayesify.laws.special import inverse_trigamma

SHIFT = 8  # asymptotic series are taken at k + SHIFT


class LogGamma(LocationScale):
    """w = loc + ξ, ξ = log Gamma(k, 1) − ψ(k), so that loc is the mean; k is the fixed `concentration`.

    Of the two laws called log-gamma this is definition (i), w = log θ + log Gamma(k, 1) with log θ = loc − ψ(k), on
    the whole line; definition (ii), an exponential, is the family `exp_gamma`. It is a location family: the scale is 1
    and the spread √ψ₁(k) is fixed at the start, so E log q does not depend on the parameters. Skewed to the left.
    """

    name = "log_gamma"
    about = "w = loc + log Gamma(concentration, 1) − ψ(concentration): log-gamma, definition (i)"
    constants: ClassVar = {"scale": 1.0}

    def __init__(self, centre: Tensor, concentration: Tensor) -> None:
        super().__init__(centre, torch.zeros_like(centre))
        self.concentration = concentration

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """k: `concentration`, or the one with std = `init_std` × root mean square of the tensor."""
        if concentration is None:
            std = positive("init_std", init_std) * root_mean_square(like)
            concentration = inverse_trigamma(std**2)
        k = positive("concentration", concentration)
        return Start({}, {"concentration": torch.full((), k, dtype=like.dtype, device=like.device)})

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """log Gamma(k) = log Gamma(k + 1) + log(u)/k, which does not underflow for small k."""
        shape, k = (*sample_shape, *self.shape), self.concentration
        ratio = standard_gamma(k + 1, shape, self.loc, generator) / k
        return ratio.log() + standard_uniform(shape, self.loc, generator).log() / k - drift(k)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """−k (e^y − 1 − y) − ½ log(2π/k) − …, y = ξ + ψ(k) − log k = log(Gamma/k)."""
        y = noise + drift(self.concentration)
        return -self.concentration * (y.expm1() - y) + log_peak(self.concentration)

    def noise_neg_entropy(self) -> Tensor:
        """k ψ(k) − log Γ(k) − k (FORMULAS 2.1)."""
        return self.concentration * drift(self.concentration) + log_peak(self.concentration)

    def expectation(self, feature: Feature) -> float | Tensor | None:
        """E ξ = 0, E ξ² = ψ₁(k), E ξ³ = ψ₂(k)."""
        if feature.kind != "log" and feature.power <= -1:
            return math.inf
        if feature == power(1):
            return 0.0
        if feature in (power(2), Feature("abs", 2)):
            return torch.polygamma(1, self.concentration)
        return torch.polygamma(2, self.concentration) if feature == power(3) else None


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
