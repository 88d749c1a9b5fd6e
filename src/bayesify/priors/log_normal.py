"""The log-normal prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log
from bayesify.priors.base import Prior, Terms, number, positive, where_inside


class LogNormal(Prior):
    """log w ~ N(loc, scale²), w > 0, entries independent."""

    name = "log_normal"
    about = "log w ~ N(loc, scale²), w > 0"

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        constant = -math.log(self.scale) - 0.5 * math.log(2 * math.pi)

        def density(w: Tensor) -> Tensor:
            log_w = w.log()
            return constant - log_w - 0.5 * ((log_w - self.loc) / self.scale).square()

        return where_inside(value, value <= 0, density, 1.0)

    def terms(self) -> Terms:
        """−log²w/(2s²) + (m/s² − 1) log w − m²/(2s²) − log s − ½ log 2π."""
        m, s = self.loc, self.scale
        constant = -0.5 * (m / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi)
        return Terms(constant, {log(1): m / s**2 - 1, log(2): -0.5 / s**2})

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}
