"""The Laplace family."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.location_scale import LocationScale
from bayesify.families.noise import standard_gamma, standard_uniform, symmetric_expectation
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import EULER


class Laplace(LocationScale):
    """q(w) = exp(−|w − loc|/scale)/(2 scale), entries independent; w = loc + scale ξ, ξ standard Laplace."""

    name = "laplace"
    about = "w = loc + scale ξ, ξ standard Laplace"
    symmetric = True
    noise_std = math.sqrt(2)

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """ξ = −sign(v) log(1 − |v|), v uniform on (−1, 1)."""
        v = 2 * standard_uniform((*sample_shape, *self.shape), self.loc, generator) - 1
        return -v.sign() * (-v.abs()).log1p()

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return -noise.abs() - math.log(2)

    def noise_neg_entropy(self) -> float:
        return -1 - math.log(2)

    def expectation(self, feature: Feature) -> float | None:
        """|ξ| is exponential: E |ξ|^p = Γ(1 + p)."""
        return symmetric_expectation(feature, laplace_moment, lambda: (-EULER, math.pi**2 / 6))

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ = Gamma(n) − Gamma(n) or Σ|ξ| = Gamma(n), one of the two (FORMULAS 2.3)."""
        shape = tuple(self.shape)
        if all(feature == absolute(1) for feature in features):
            total = standard_gamma(float(n), shape, self.loc, generator)
        elif all(feature == power(1) for feature in features):
            total = standard_gamma(float(n), shape, self.loc, generator)
            total = total - standard_gamma(float(n), shape, self.loc, generator)
        else:
            return None
        return [total for _ in features]


def laplace_moment(p: float) -> float:
    """E |ξ|^p = Γ(1 + p), ξ standard Laplace."""
    return math.gamma(1 + p) if p > -1 else math.inf
