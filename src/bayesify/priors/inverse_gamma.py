"""The inverse-gamma prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class InverseGamma(Prior):
    """p(w) = rate^k w^{−k−1} exp(−rate/w)/Γ(k), w > 0, k the concentration; entries independent."""

    name = "inverse_gamma"
    about = "1/w ~ Gamma(concentration, rate), w > 0"

    def __init__(self, concentration: float = 1.0, rate: float = 1.0) -> None:
        self.concentration = positive("concentration", concentration)
        self.rate = positive("rate", rate)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        constant, k, rate = self.terms().constant, self.concentration, self.rate
        return where_inside(value, value <= 0, lambda w: constant - (k + 1) * w.log() - rate / w, 1.0)

    def terms(self) -> Terms:
        """k log β − log Γ(k) − (k + 1) log w − β/w."""
        k, rate = self.concentration, self.rate
        return Terms(k * math.log(rate) - math.lgamma(k), {log(1): -k - 1, power(-1): -rate})

    @property
    def options(self) -> dict[str, Any]:
        return {"concentration": self.concentration, "rate": self.rate}
