"""The normal law."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, Terms, absolute, power
from bayesify.laws.noise import Shape, standard_normal
from bayesify.laws.special import EULER

LOG_MEAN = -0.5 * (EULER + math.log(2))  # of |ξ|
LOG_VAR = math.pi**2 / 8


class Normal(Law):
    """ξ ~ N(0, 1): log p(ξ) = −½ ξ² − ½ log 2π."""

    symmetric = True

    def log_density(self, x: Tensor) -> Tensor:
        """−½ ξ² − ½ log 2π."""
        return -0.5 * x.square() - 0.5 * math.log(2 * math.pi)

    def terms(self) -> Terms:
        """With the first power, which a location brings in."""
        return Terms(-0.5 * math.log(2 * math.pi), {power(1): 0.0, power(2): -0.5})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """N(0, 1)."""
        return standard_normal(shape, like, generator)

    def neg_entropy(self) -> float:
        """−½ log 2πe."""
        return -0.5 * math.log(2 * math.pi * math.e)

    def moment(self, p: float) -> float:
        """E |ξ|^p = 2^{p/2} Γ((p + 1)/2)/√π."""
        return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi) if p > -1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """−½ (γ + log 2) and π²/8."""
        return LOG_MEAN, LOG_VAR

    def sums(
        self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None
    ) -> list[Tensor] | None:
        """Σξ = √n z and Σξ² = z² + χ²_{n−1}, z ~ N(0, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(1), power(2), absolute(2)) for feature in features):
            return None
        shape = tuple(like.shape)
        z = standard_normal(shape, like, generator)
        first = math.sqrt(n) * z
        if all(feature == power(1) for feature in features):
            return [first for _ in features]
        second = z.square() + chi_squared(n - 1, shape, like, generator)
        return [first if feature == power(1) else second for feature in features]
