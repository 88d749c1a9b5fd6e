"""The Laplace prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import absolute
from bayesify.priors.base import Prior, Terms, number, positive


class Laplace(Prior):
    """p(w) = exp(−|w − loc|/scale)/(2 scale), entries independent."""

    name = "laplace"
    about = "exp(−|w − loc|/scale)/(2 scale)"

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return -(value - self.loc).abs() / self.scale - math.log(2 * self.scale)

    def terms(self) -> Terms | None:
        """−|w|/scale − log(2 scale) at loc = 0; else |w − loc| is no feature of w."""
        return None if self.loc else Terms(-math.log(2 * self.scale), {absolute(1): -1 / self.scale})

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}
