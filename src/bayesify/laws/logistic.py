"""The logistic law."""

import math

from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_uniform
from bayesify.laws.special import EULER, alternating_zeta

# The first two derivatives of E |ξ|^p = 2 Γ(1 + p) η(p) at p = 0, with η″(0) = −0.0610291…
LOG_MEAN = math.log(math.pi / 2) - EULER
LOG_VAR = math.pi**2 / 6 + 2 * -0.06102914376805610 - math.log(math.pi / 2) ** 2


class Logistic(Law):
    """log p(ξ) = log s(ξ) + log s(−ξ), s the sigmoid."""

    symmetric = True
    singularities = (complex(0, math.pi),)

    def log_density(self, x: Tensor) -> Tensor:
        """log s(ξ) + log s(−ξ), which is smooth at 0, where an |ξ| would leave no second derivative."""
        return logsigmoid(x) + logsigmoid(-x)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ξ = log(u/(1 − u)), u uniform on (0, 1)."""
        return standard_uniform(shape, like, generator).logit()

    def neg_entropy(self) -> float:
        """−2."""
        return -2.0

    def moment(self, p: float) -> float:
        """E |ξ|^p = 2 Γ(1 + p) η(p), η the alternating zeta function."""
        return 2 * math.gamma(1 + p) * alternating_zeta(p) if p > -1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """log(π/2) − γ and π²/6 + 2 η″(0) − log²(π/2)."""
        return LOG_MEAN, LOG_VAR
