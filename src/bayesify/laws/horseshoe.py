"""The horseshoe law."""

import math

from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_normal
from bayesify.laws.normal import LOG_MEAN, LOG_VAR, Normal
from bayesify.laws.special import log_scaled_e1

NEG_ENTROPY = -2.1098718360616477  # E log p(ξ), by quadrature in 25 digits


class Horseshoe(Law):
    """ξ = λ z, λ half-Cauchy, z standard normal, λ integrated out: log p(ξ) = x + log E₁(x) − ½ log 2π³, x = ξ²/2.

    The density has no bound at 0, where numbers too small for x to be a normal number count as the smallest that is
    not. Its tails are like 1/ξ²: there is no mean.
    """

    symmetric = True
    singularities = (0j,)

    def log_density(self, x: Tensor) -> Tensor:
        """x + log E₁(x) − ½ log 2π³, x = ξ²/2."""
        return log_scaled_e1(0.5 * x.square()) - 0.5 * math.log(2 * math.pi**3)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """z₁ z₂/z₃: a ratio of normals is Cauchy."""
        first, second, third = (standard_normal(shape, like, generator) for _ in range(3))
        return first * second / third.abs().clamp(min=1e-12)

    def neg_entropy(self) -> float:
        """−2.10987."""
        return NEG_ENTROPY

    def moment(self, p: float) -> float:
        """E |ξ|^p = E λ^p E |z|^p = E |z|^p/cos(πp/2) for |p| < 1."""
        return Normal().moment(p) / math.cos(math.pi * p / 2) if abs(p) < 1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """Those of |z|, and log λ has mean 0 and variance π²/4."""
        return LOG_MEAN, LOG_VAR + math.pi**2 / 4
