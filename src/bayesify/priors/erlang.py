"""The Erlang prior."""

from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, Terms, positive, whole
from bayesify.priors.gamma import gamma_log_prob, gamma_terms


class Erlang(Prior):
    """The gamma prior with a whole concentration: the law of a sum of that many exponential numbers."""

    name = "erlang"
    about = "Gamma(concentration, rate), concentration a whole number, w > 0"

    def __init__(self, concentration: float = 2.0, rate: float = 1.0) -> None:
        self.concentration = whole("concentration", concentration)
        self.rate = positive("rate", rate)

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
