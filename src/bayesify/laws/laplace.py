"""The Laplace law."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Feature, Terms, absolute, power
from bayesify.laws.noise import Shape, standard_gamma, standard_uniform


class Laplace(PowerOfGamma):
    """log p(ξ) = −|ξ| − log 2; |ξ| ~ Exp(1)."""

    symmetric = True
    singularities = (0j,)
    power_of_gamma = (1.0, 1.0, 1.0)

    def terms(self) -> Terms:
        """−|ξ| − log 2."""
        return Terms(-math.log(2), {absolute(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ξ = −sign(v) log(1 − |v|), v uniform on (−1, 1)."""
        v = 2 * standard_uniform(shape, like, generator) - 1
        return -v.sign() * (-v.abs()).log1p()

    def neg_entropy(self) -> float:
        """−1 − log 2."""
        return -1 - math.log(2)

    def sums(
        self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None
    ) -> list[Tensor] | None:
        """Σξ = Gamma(n) − Gamma(n) or Σ|ξ| = Gamma(n), one of the two (FORMULAS 2.3)."""
        if any(feature != power(1) for feature in features):
            return super().sums(features, n, like, generator)
        first, second = (standard_gamma(float(n), tuple(like.shape), like, generator) for _ in range(2))
        return [first - second for _ in features]
