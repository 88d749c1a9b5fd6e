"""The inverse-gamma family."""

from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.gamma_law import gamma_expectation, gamma_log_prob, gamma_neg_entropy
from bayesify.families.noise import standard_gamma
from bayesify.families.scale import ShapedScale
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import digamma


class InverseGamma(ShapedScale):
    """|w| = scale ξ, ξ = 1/Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign.

    E ξ is finite for k > 1; below, the centre is the geometric mean of |w|.
    """

    name = "inverse_gamma"
    about = "|w| = scale ξ, ξ = 1/Gamma(concentration, 1)"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/(k − 2)."""
        return 2 + ratio**-2

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return 1 / standard_gamma(self.concentration, (*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """log q₀(ξ) = log Gamma(1/ξ; k, 1) − 2 log ξ."""
        return gamma_log_prob(1 / noise, self.concentration) - 2 * noise.log()

    def noise_neg_entropy(self) -> float:
        """−(k + log Γ(k) − (1 + k) ψ(k)) (FORMULAS 2.1)."""
        return gamma_neg_entropy(self.concentration) + 2 * digamma(self.concentration)

    def expectation(self, feature: Feature) -> float | None:
        return gamma_expectation(feature, self.concentration, sign=-1)

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σ1/ξ = Gamma(nk, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(-1), absolute(-1)) for feature in features):
            return None
        total = standard_gamma(n * self.concentration, tuple(self.shape), self.centre, generator)
        return [total for _ in features]

    @property
    def rate(self) -> Tensor:
        """The name torch.distributions.InverseGamma gives the scale."""
        return self.scale
