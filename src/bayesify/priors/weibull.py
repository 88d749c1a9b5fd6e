"""The Weibull prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class Weibull(Prior):
    """p(w) = (k/s)(w/s)^{k−1} exp(−(w/s)^k), w > 0, k the concentration, s the scale; entries independent."""

    name = "weibull"
    about = "(w/scale)^concentration ~ Exp(1), w > 0"
    constants = ("concentration",)

    def __init__(self, scale: float = 1.0, concentration: float = 1.0) -> None:
        self.scale = positive("scale", scale)
        self.concentration = positive("concentration", concentration)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        k, constant = self.concentration, math.log(self.concentration / self.scale)

        def density(w: Tensor) -> Tensor:
            ratio = w / self.scale
            return constant + (k - 1) * ratio.log() - ratio**k

        return where_inside(value, value <= 0, density, 1.0)

    def terms(self) -> Terms:
        """log k − k log s + (k − 1) log w − w^k/s^k."""
        k, s = self.concentration, self.scale
        return Terms(math.log(k) - k * math.log(s), {log(1): k - 1, power(k): -(s**-k)})

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale, "concentration": self.concentration}
