"""The horseshoe prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.special import log_scaled_e1
from bayesify.priors.base import Prior, positive


class Horseshoe(Prior):
    """w = scale λ z, λ half-Cauchy, z standard normal, with λ integrated out; entries independent.

    log p(w) = x + log E₁(x) − ½ log 2π³ − log scale, x = (w/scale)²/2 (FORMULAS 2.2). The density has no bound at 0;
    weights too small for x to be a normal number count as the smallest that is not.
    """

    name = "horseshoe"
    about = "w = scale λ z, λ half-Cauchy, z standard normal"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        x = 0.5 * (value / self.scale).square()
        return log_scaled_e1(x) - 0.5 * math.log(2 * math.pi**3) - math.log(self.scale)

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}
