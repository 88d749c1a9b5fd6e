"""The Rayleigh prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class Rayleigh(Prior):
    """p(w) = w exp(−w²/(2s²))/s², w > 0, s the scale; entries independent."""

    name = "rayleigh"
    about = "w exp(−w²/(2 scale²))/scale², w > 0"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive("scale", scale)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        constant = -2 * math.log(self.scale)
        return where_inside(
            value, value <= 0, lambda w: constant + w.log() - 0.5 * (w / self.scale).square(), 1.0
        )

    def terms(self) -> Terms:
        return Terms(-2 * math.log(self.scale), {log(1): 1.0, power(2): -0.5 / self.scale**2})

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}
