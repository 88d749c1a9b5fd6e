"""The Weibull family."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.noise import positive_expectation, standard_exponential, standard_gamma
from bayesify.families.scale import ShapedScale
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import EULER, bisect, gamma_ratio


class Weibull(ShapedScale):
    """|w| = scale ξ, ξ = Exp(1)^{1/k}, k the fixed `concentration`; each weight keeps its sign."""

    name = "weibull"
    about = "|w| = scale ξ, ξ = Exp(1)^{1/concentration}"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = Γ(1 + 2/k)/Γ(1 + 1/k)² − 1, solved for k."""

        def log_ratio(k: float) -> float:
            return math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)

        return bisect(log_ratio, math.log1p(ratio**2), 1e-2, 1e6)

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        exponential = standard_exponential((*sample_shape, *self.shape), self.centre, generator)
        return exponential ** (1 / self.concentration)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """log k + (k − 1) log ξ − ξ^k."""
        k = self.concentration
        return math.log(k) + (k - 1) * noise.log() - noise**k

    def noise_neg_entropy(self) -> float:
        """−(γ (1 − 1/k) − log k + 1) (FORMULAS 2.1)."""
        k = self.concentration
        return -(EULER * (1 - 1 / k) - math.log(k) + 1)

    def expectation(self, feature: Feature) -> float | None:
        """E ξ^p = Γ(1 + p/k)."""
        k = self.concentration
        return positive_expectation(
            feature, lambda p: gamma_ratio(1.0, p / k), lambda: (-EULER / k, math.pi**2 / (6 * k**2))
        )

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ^k = Gamma(n, 1), the same k (FORMULAS 2.3)."""
        k = self.concentration
        if any(feature not in (power(k), absolute(k)) for feature in features):
            return None
        total = standard_gamma(float(n), tuple(self.shape), self.centre, generator)
        return [total for _ in features]
