"""The exponential family of magnitudes."""

from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.gamma_law import gamma_expectation
from bayesify.families.noise import standard_exponential, standard_gamma
from bayesify.families.scale import Scale
from bayesify.laws.features import Feature, absolute, power


class Exponential(Scale):
    """|w| = scale ξ, ξ ~ Exp(1); each weight keeps its sign. std = mean, so `init_std` changes nothing."""

    name = "exponential"
    about = "|w| = scale ξ, ξ ~ Exp(1)"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_exponential((*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return -noise

    def noise_neg_entropy(self) -> float:
        return -1.0

    def expectation(self, feature: Feature) -> float | None:
        return gamma_expectation(feature, 1.0)

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ = Gamma(n, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(1), absolute(1)) for feature in features):
            return None
        total = standard_gamma(float(n), tuple(self.shape), self.centre, generator)
        return [total for _ in features]

    @property
    def rate(self) -> Tensor:
        return 1 / self.scale
