"""The inverse-gamma law."""

import math
from dataclasses import dataclass

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, log, power
from bayesify.laws.gamma import Gamma
from bayesify.laws.noise import Shape
from bayesify.laws.special import digamma


@dataclass
class InverseGamma(PowerOfGamma):
    """1/ξ ~ Gamma(k, 1): log p(ξ) = −(k + 1) log ξ − 1/ξ − log Γ(k), ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """−1, k and 1."""
        return -1.0, self.concentration, 1.0

    def log_density(self, x: Tensor) -> Tensor:
        """log Gamma(1/ξ; k, 1) − 2 log ξ."""
        return Gamma(self.concentration).log_density(1 / x) - 2 * x.log()

    def terms(self) -> Terms:
        """−(k + 1) log ξ − 1/ξ − log Γ(k)."""
        k = self.concentration
        return Terms(-math.lgamma(k), {log(1): -k - 1, power(-1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """1/Gamma(k, 1)."""
        return 1 / Gamma(self.concentration).sample(shape, like, generator)

    def neg_entropy(self) -> float:
        """−(k + log Γ(k) − (1 + k) ψ(k)) (FORMULAS 2.1)."""
        return Gamma(self.concentration).neg_entropy() + 2 * digamma(self.concentration)
