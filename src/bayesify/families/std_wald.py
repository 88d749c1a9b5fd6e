"""The standard Wald family."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.noise import inverse_gaussian, positive_expectation
from bayesify.families.scale import Scale
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import bessel_k

LOG_MEAN = -0.36132861688822258  # E log ξ = −e² E₁(2)
LOG_SQUARE = 0.83671692783466241  # E log² ξ, by quadrature in 25 digits


class StdWald(Scale):
    """|w| = scale ξ, ξ ~ inverse Gaussian IG(1, 1); each weight keeps its sign.

    std = mean, so `init_std` changes nothing.
    """

    name = "std_wald"
    about = "|w| = scale ξ, ξ ~ inverse Gaussian with mean 1 and concentration 1"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return inverse_gaussian((*sample_shape, *self.shape), self.centre, 1.0, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """−½ log 2π − 3/2 log ξ − (ξ − 1)²/(2ξ)."""
        return -0.5 * math.log(2 * math.pi) - 1.5 * noise.log() - (noise - 1).square() / (2 * noise)

    def noise_neg_entropy(self) -> float:
        """−½ log 2π − 3/2 E log ξ − ½ (FORMULAS 2.1)."""
        return -0.5 * math.log(2 * math.pi) - 1.5 * LOG_MEAN - 0.5

    def expectation(self, feature: Feature) -> float | None:
        """E ξ^p = √(2/π) e K_{p−½}(1)."""
        return positive_expectation(
            feature,
            lambda p: 1.0 if p == 1 else math.sqrt(2 / math.pi) * math.e * bessel_k(p - 0.5, 1.0),
            lambda: (LOG_MEAN, LOG_SQUARE - LOG_MEAN**2),
        )

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ ~ IG(n, n²) and Σ1/ξ = n²/Σξ + χ²_{n−1}, independent (FORMULAS 2.3)."""
        first, inverse = (power(1), absolute(1)), (power(-1), absolute(-1))
        if any(feature not in (*first, *inverse) for feature in features):
            return None
        shape = tuple(self.shape)
        total = n * inverse_gaussian(shape, self.centre, float(n), generator)
        if all(feature in first for feature in features):
            return [total for _ in features]
        inverses = n**2 / total + chi_squared(n - 1, shape, self.centre, generator)
        return [total if feature in first else inverses for feature in features]
