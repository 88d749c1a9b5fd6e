"""The Pareto prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log
from bayesify.priors.base import Prior, Terms, positive, where_inside


class Pareto(Prior):
    """p(w) = a s^a/w^{a+1}, w ≥ s, a = alpha, s = scale; entries independent."""

    name = "pareto"
    about = "alpha scale^alpha/w^{alpha+1}, w ≥ scale"

    def __init__(self, scale: float = 1.0, alpha: float = 1.0) -> None:
        self.scale = positive("scale", scale)
        self.alpha = positive("alpha", alpha)

    @property
    def lower(self) -> float:
        return self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        a, constant = self.alpha, self.terms().constant
        return where_inside(value, value < self.scale, lambda w: constant - (a + 1) * w.log(), self.scale)

    def terms(self) -> Terms:
        return Terms(math.log(self.alpha) + self.alpha * math.log(self.scale), {log(1): -self.alpha - 1})

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale, "alpha": self.alpha}
