"""The horseshoe family."""

import math

import torch
from torch import Generator, Tensor

from bayesify.families.location_scale import LocationScale
from bayesify.families.noise import standard_normal, symmetric_expectation
from bayesify.families.normal import LOG_MEAN, LOG_VAR, normal_moment
from bayesify.laws.features import Feature
from bayesify.laws.special import log_scaled_e1

NEG_ENTROPY = -2.1098718360616477  # E log q₀(ξ), by quadrature in 25 digits


class Horseshoe(LocationScale):
    """w = loc + scale ξ, ξ = λ z, λ half-Cauchy, z standard normal; log q₀(ξ) = ξ²/2 + log E₁(ξ²/2) − ½ log 2π³.

    The density has a peak without bound at loc and tails like 1/w²: there is no mean, and the variance is infinite. So
    `mean` gives the median loc, and KL to normal, Laplace and logistic priors is infinite (FORMULAS 2.2).
    """

    name = "horseshoe"
    about = "w = loc + scale λ z, λ half-Cauchy, z standard normal; has no mean"
    symmetric = True

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """z₁ z₂/z₃: a ratio of normals is Cauchy."""
        shape = (*sample_shape, *self.shape)
        first, second, third = (standard_normal(shape, self.loc, generator) for _ in range(3))
        return first * second / third.abs().clamp(min=1e-12)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return horseshoe_log_prob(noise)

    def noise_neg_entropy(self) -> float:
        return NEG_ENTROPY

    def expectation(self, feature: Feature) -> float | None:
        """E |ξ|^p = E λ^p E |z|^p, and log λ has mean 0 and variance π²/4."""
        return symmetric_expectation(feature, horseshoe_moment, lambda: (LOG_MEAN, LOG_VAR + math.pi**2 / 4))

    @property
    def mean(self) -> Tensor:
        """The median: there is no mean."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.full_like(self.loc, math.inf)


def horseshoe_log_prob(noise: Tensor) -> Tensor:
    """ξ²/2 + log E₁(ξ²/2) − ½ log 2π³."""
    return log_scaled_e1(0.5 * noise.square()) - 0.5 * math.log(2 * math.pi**3)


def horseshoe_moment(p: float) -> float:
    """E |ξ|^p = E |z|^p/cos(πp/2) for |p| < 1."""
    return normal_moment(p) / math.cos(math.pi * p / 2) if abs(p) < 1 else math.inf
