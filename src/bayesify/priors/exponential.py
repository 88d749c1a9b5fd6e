"""The exponential prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class Exponential(Prior):
    """p(w) = rate exp(−rate w), w ≥ 0, entries independent."""

    name = "exponential"
    about = "rate exp(−rate w), w ≥ 0"

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = positive("rate", rate)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return where_inside(value, value < 0, lambda w: math.log(self.rate) - self.rate * w, 1.0)

    def terms(self) -> Terms:
        return Terms(math.log(self.rate), {power(1): -self.rate})

    @property
    def options(self) -> dict[str, Any]:
        return {"rate": self.rate}
