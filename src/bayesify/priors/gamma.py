"""The gamma prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class GammaDensity(Prior):
    """p(w) = rate^k w^{k−1} exp(−rate w)/Γ(k), w > 0, k the concentration; entries independent."""

    concentration: float
    rate: float

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return gamma_log_prob(value, self.concentration, self.rate)

    def terms(self) -> Terms:
        return gamma_terms(self.concentration, self.rate)

    @property
    def options(self) -> dict[str, Any]:
        return {"concentration": self.concentration, "rate": self.rate}


class Gamma(GammaDensity):
    """The gamma prior with any concentration."""

    name = "gamma"
    about = "Gamma(concentration, rate), w > 0"

    def __init__(self, concentration: float = 1.0, rate: float = 1.0) -> None:
        self.concentration = positive("concentration", concentration)
        self.rate = positive("rate", rate)


def gamma_log_prob(value: Tensor, k: float, rate: float) -> Tensor:
    """k log β − log Γ(k) + (k − 1) log w − β w."""
    constant = k * math.log(rate) - math.lgamma(k)
    return where_inside(value, value <= 0, lambda w: constant + (k - 1) * w.log() - rate * w, 1.0)


def gamma_terms(k: float, rate: float) -> Terms:
    return Terms(k * math.log(rate) - math.lgamma(k), {log(1): k - 1, power(1): -rate})
