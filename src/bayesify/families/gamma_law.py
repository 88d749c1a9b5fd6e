"""The law Gamma(k, 1) of base noise, shared by the families built on it."""

import math

from torch import Tensor

from bayesify.families.noise import positive_expectation
from bayesify.features import Feature
from bayesify.special import digamma, gamma_ratio, stirling, trigamma


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
