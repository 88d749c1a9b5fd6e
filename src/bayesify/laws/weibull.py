"""The Weibull law."""

import math
from dataclasses import dataclass

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, log, power
from bayesify.laws.noise import Shape, standard_exponential
from bayesify.laws.special import EULER


@dataclass
class Weibull(PowerOfGamma):
    """ξ^k ~ Exp(1): log p(ξ) = log k + (k − 1) log ξ − ξ^k, ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """k, 1 and 1."""
        return self.concentration, 1.0, 1.0

    def terms(self) -> Terms:
        """log k + (k − 1) log ξ − ξ^k."""
        k = self.concentration
        return Terms(math.log(k), {log(1): k - 1, power(k): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Exp(1)^{1/k}."""
        return standard_exponential(shape, like, generator) ** (1 / self.concentration)

    def neg_entropy(self) -> float:
        """−(γ (1 − 1/k) − log k + 1) (FORMULAS 2.1)."""
        k = self.concentration
        return -(EULER * (1 - 1 / k) - math.log(k) + 1)
