"""The logistic prior."""

import math
from typing import Any

from torch import Tensor, nn

from bayesify.priors.base import Prior, number, positive


class Logistic(Prior):
    """p(w) = s(z)(1 − s(z))/scale, z = (w − loc)/scale, s the sigmoid; entries independent."""

    name = "logistic"
    about = "s(z)(1 − s(z))/scale, z = (w − loc)/scale, s the sigmoid"

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return nn.functional.logsigmoid(z) + nn.functional.logsigmoid(-z) - math.log(self.scale)

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}
