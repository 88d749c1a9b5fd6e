"""The normal prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import power
from bayesify.priors.base import Prior, Terms, number, positive


class Normal(Prior):
    """p(w) = N(w; mean, std²), entries independent."""

    name = "normal"
    about = "N(mean, std²)"

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        self.mean = number("mean", mean)
        self.std = positive("std", std)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.mean) / self.std
        return -0.5 * z.square() - math.log(self.std) - 0.5 * math.log(2 * math.pi)

    def terms(self) -> Terms:
        """−(w² − 2mw + m²)/(2s²) − log s − ½ log 2π."""
        m, s = self.mean, self.std
        constant = -0.5 * (m / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi)
        return Terms(constant, {power(1): m / s**2, power(2): -0.5 / s**2})

    @property
    def options(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std}
