"""The standard Wald prior."""

from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, Terms
from bayesify.priors.inverse_gaussian import inverse_gaussian_log_prob, inverse_gaussian_terms


class StdWald(Prior):
    """The inverse Gaussian of mean 1 and shape 1, w > 0, entries independent."""

    name = "std_wald"
    about = "inverse Gaussian of mean 1 and shape 1, w > 0"

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return inverse_gaussian_log_prob(value, 1.0, 1.0)

    def terms(self) -> Terms:
        return inverse_gaussian_terms(1.0, 1.0)

    @property
    def options(self) -> dict[str, Any]:
        return {}
