"""The exponential law."""

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, power
from bayesify.laws.noise import Shape, standard_exponential


class Exponential(PowerOfGamma):
    """ξ ~ Exp(1): log p(ξ) = −ξ, ξ ≥ 0."""

    lower = 0.0
    power_of_gamma = (1.0, 1.0, 1.0)

    def outside(self, x: Tensor) -> Tensor:
        """0 belongs to the support."""
        return x < 0

    def terms(self) -> Terms:
        """−ξ."""
        return Terms(0.0, {power(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Exp(1)."""
        return standard_exponential(shape, like, generator)

    def neg_entropy(self) -> float:
        """−1."""
        return -1.0
