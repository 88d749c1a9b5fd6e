"""The Rayleigh family."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.noise import positive_expectation, standard_exponential, standard_gamma
from bayesify.families.scale import Scale
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import EULER, gamma_ratio


class Rayleigh(Scale):
    """|w| = scale ξ, ξ = √(2 Exp(1)); each weight keeps its sign. std/mean = 0.52, so `init_std` changes nothing."""

    name = "rayleigh"
    about = "|w| = scale ξ, ξ = √(2 Exp(1))"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return (2 * standard_exponential((*sample_shape, *self.shape), self.centre, generator)).sqrt()

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return noise.log() - 0.5 * noise.square()

    def noise_neg_entropy(self) -> float:
        """−(1 − ½ log 2 + γ/2) (FORMULAS 2.1)."""
        return -(1 - 0.5 * math.log(2) + 0.5 * EULER)

    def expectation(self, feature: Feature) -> float | None:
        """E ξ^p = 2^{p/2} Γ(1 + p/2)."""
        return positive_expectation(
            feature,
            lambda p: 2 ** (p / 2) * gamma_ratio(1.0, p / 2),
            lambda: (0.5 * (math.log(2) - EULER), math.pi**2 / 24),
        )

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ² = 2 Gamma(n, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(2), absolute(2)) for feature in features):
            return None
        total = 2 * standard_gamma(float(n), tuple(self.shape), self.centre, generator)
        return [total for _ in features]
