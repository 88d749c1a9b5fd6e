"""The χ² prior."""

from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, Terms, positive
from bayesify.priors.gamma import gamma_log_prob, gamma_terms


class ChiSquared(Prior):
    """χ² with df degrees of freedom: Gamma(df/2, ½), w > 0, entries independent."""

    name = "chi_squared"
    about = "χ² with df degrees of freedom, w > 0"

    def __init__(self, df: float = 1.0) -> None:
        self.df = positive("df", df)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return gamma_log_prob(value, self.df / 2, 0.5)

    def terms(self) -> Terms:
        return gamma_terms(self.df / 2, 0.5)

    @property
    def options(self) -> dict[str, Any]:
        return {"df": self.df}
