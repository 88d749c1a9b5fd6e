"""The law Gamma(k, 1) of base noise, shared by the families built on it."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from bayesify.families.noise import positive_expectation, standard_gamma
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import digamma, gamma_ratio, stirling, trigamma


class GammaLaw:
    """ξ ~ Gamma(k, 1), k the `concentration`: the members of a family that concern its base noise."""

    concentration: float
    centre: Tensor
    shape: torch.Size

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


def gamma_log_prob(noise: Tensor, k: float) -> Tensor:
    """(k − 1) log ξ − ξ − log Γ(k), written about ξ = k so that large k keep their digits."""
    return (k - 1) * (noise / k).log() - (noise - k) - 0.5 * math.log(k) - stirling(k)


def gamma_neg_entropy(k: float) -> float:
    """−(k + log Γ(k) + (1 − k) ψ(k)), for large k about log k."""
    drift = digamma(k) - math.log(k)
    return (k - 1) * drift - 0.5 * math.log(k) - stirling(k)


def gamma_expectation(feature: Feature, k: float, sign: int = 1) -> float | None:
    """E t(ξ^sign): E ξ^p = Γ(k + p)/Γ(k), log ξ has mean ψ(k) and variance ψ₁(k)."""
    return positive_expectation(
        feature, lambda p: gamma_ratio(k, sign * p), lambda: (sign * digamma(k), trigamma(k))
    )
