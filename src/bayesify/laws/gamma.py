"""The gamma law."""

import math
from dataclasses import dataclass

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, log, power
from bayesify.laws.noise import Shape, standard_gamma
from bayesify.laws.special import digamma, stirling


@dataclass
class Gamma(PowerOfGamma):
    """ξ ~ Gamma(k, 1): log p(ξ) = (k − 1) log ξ − ξ − log Γ(k), ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """1, k and 1."""
        return 1.0, self.concentration, 1.0

    def log_density(self, x: Tensor) -> Tensor:
        """(k − 1) log ξ − ξ − log Γ(k), written about ξ = k so that large k keep their digits."""
        k = self.concentration
        return (k - 1) * (x / k).log() - (x - k) - 0.5 * math.log(k) - stirling(k)

    def terms(self) -> Terms:
        """(k − 1) log ξ − ξ − log Γ(k)."""
        k = self.concentration
        return Terms(-math.lgamma(k), {log(1): k - 1, power(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Gamma(k, 1)."""
        return standard_gamma(self.concentration, shape, like, generator)

    def neg_entropy(self) -> float:
        """−(k + log Γ(k) + (1 − k) ψ(k)), for large k about log k."""
        k = self.concentration
        return (k - 1) * (digamma(k) - math.log(k)) - 0.5 * math.log(k) - stirling(k)
