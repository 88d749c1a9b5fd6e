"""The Rayleigh law."""

import math

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, log, power
from bayesify.laws.noise import Shape, standard_exponential
from bayesify.laws.special import EULER


class Rayleigh(PowerOfGamma):
    """ξ² ~ 2 Exp(1): log p(ξ) = log ξ − ½ ξ², ξ > 0."""

    lower = 0.0
    power_of_gamma = (2.0, 1.0, 2.0)

    def terms(self) -> Terms:
        """log ξ − ½ ξ²."""
        return Terms(0.0, {log(1): 1.0, power(2): -0.5})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """√(2 Exp(1))."""
        return (2 * standard_exponential(shape, like, generator)).sqrt()

    def neg_entropy(self) -> float:
        """−(1 − ½ log 2 + γ/2) (FORMULAS 2.1)."""
        return -(1 - 0.5 * math.log(2) + 0.5 * EULER)
