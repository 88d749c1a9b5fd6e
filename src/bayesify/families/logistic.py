"""The logistic family."""

import math

from torch import Generator, Tensor, nn

from bayesify.families.location_scale import LocationScale
from bayesify.families.noise import standard_uniform, symmetric_expectation
from bayesify.laws.features import Feature
from bayesify.laws.special import EULER, alternating_zeta

# The first two derivatives of E |ξ|^p = 2 Γ(1 + p) η(p) at p = 0, with η″(0) = −0.0610291…
LOG_MEAN = math.log(math.pi / 2) - EULER
LOG_VAR = math.pi**2 / 6 + 2 * -0.06102914376805610 - math.log(math.pi / 2) ** 2


class Logistic(LocationScale):
    """q(w) = s(z)(1 − s(z))/scale, z = (w − loc)/scale, s the sigmoid; w = loc + scale ξ, ξ standard logistic."""

    name = "logistic"
    about = "w = loc + scale ξ, ξ standard logistic"
    symmetric = True
    noise_std = math.pi / math.sqrt(3)

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """ξ = log(u/(1 − u)), u uniform on (0, 1)."""
        return standard_uniform((*sample_shape, *self.shape), self.loc, generator).logit()

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        size = noise.abs()
        return -size - 2 * nn.functional.softplus(-size)

    def noise_neg_entropy(self) -> float:
        return -2.0

    def expectation(self, feature: Feature) -> float | None:
        return symmetric_expectation(feature, logistic_moment, lambda: (LOG_MEAN, LOG_VAR))


def logistic_moment(p: float) -> float:
    """E |ξ|^p = 2 Γ(1 + p) η(p), η the alternating zeta function, ξ standard logistic."""
    return 2 * math.gamma(1 + p) * alternating_zeta(p) if p > -1 else math.inf
