"""The log-normal family."""

import math
from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.log_location_scale import LogLocationScale
from bayesify.families.noise import standard_normal, symmetric_expectation
from bayesify.families.normal import LOG_MEAN, LOG_VAR, normal_log_prob, normal_moment, normal_sums
from bayesify.laws.features import Feature


class LogNormal(LogLocationScale):
    """log |w| = loc + scale ξ, ξ ~ N(0, 1); each weight keeps its sign. The centre is the median."""

    name = "log_normal"
    about = "log |w| = loc + scale ξ, ξ standard normal"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return normal_log_prob(noise)

    def noise_neg_entropy(self) -> float:
        return -0.5 * math.log(2 * math.pi * math.e)

    def noise_log_mgf(self, t: Tensor) -> Tensor:
        """log E e^{tξ} = t²/2."""
        return 0.5 * t.square()

    def expectation(self, feature: Feature) -> float | None:
        return symmetric_expectation(feature, normal_moment, lambda: (LOG_MEAN, LOG_VAR))

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        return normal_sums(features, n, self.centre, generator)
