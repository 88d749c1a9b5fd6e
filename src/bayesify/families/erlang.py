"""The Erlang family."""

from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.base import positive
from bayesify.families.gamma_law import gamma_expectation, gamma_log_prob, gamma_neg_entropy
from bayesify.families.noise import standard_gamma
from bayesify.families.scale import ShapedScale
from bayesify.features import Feature, absolute, power


class Erlang(ShapedScale):
    """|w| = scale ξ, ξ ~ Gamma(k, 1), k = `concentration` a fixed whole number; each weight keeps its sign."""

    name = "erlang"
    about = "|w| = scale ξ, ξ ~ Gamma(concentration, 1), concentration a whole number"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/k, k rounded."""
        return float(max(1, round(ratio**-2)))

    @classmethod
    def check_concentration(cls, concentration: float) -> float:
        if positive("concentration", concentration) != int(concentration):
            raise ValueError(
                f"concentration={concentration!r} must be a whole number for the erlang family: "
                "round it, or use the gamma family"
            )
        return float(concentration)

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_gamma(self.concentration, (*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return gamma_log_prob(noise, self.concentration)

    def noise_neg_entropy(self) -> float:
        return gamma_neg_entropy(self.concentration)

    def expectation(self, feature: Feature) -> float | None:
        return gamma_expectation(feature, self.concentration)

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ = Gamma(nk, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(1), absolute(1)) for feature in features):
            return None
        total = standard_gamma(n * self.concentration, tuple(self.shape), self.centre, generator)
        return [total for _ in features]

    @property
    def rate(self) -> Tensor:
        return 1 / self.scale
