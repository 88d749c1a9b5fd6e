"""The inverse-Gaussian prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, Terms, positive, where_inside


class InverseGaussian(Prior):
    """p(w) = √(λ/(2πw³)) exp(−λ(w − μ)²/(2μ²w)), w > 0, μ = loc (the mean), λ = concentration; independent."""

    name = "inverse_gaussian"
    about = "inverse Gaussian of mean loc and shape concentration, w > 0"

    def __init__(self, loc: float = 1.0, concentration: float = 1.0) -> None:
        self.loc = positive("loc", loc)
        self.concentration = positive("concentration", concentration)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        return inverse_gaussian_log_prob(value, self.loc, self.concentration)

    def terms(self) -> Terms:
        return inverse_gaussian_terms(self.loc, self.concentration)

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "concentration": self.concentration}


def inverse_gaussian_log_prob(value: Tensor, mean: float, shape: float) -> Tensor:
    constant = 0.5 * math.log(shape / (2 * math.pi))

    def density(w: Tensor) -> Tensor:
        return constant - 1.5 * w.log() - shape * (w - mean).square() / (2 * mean**2 * w)

    return where_inside(value, value <= 0, density, 1.0)


def inverse_gaussian_terms(mean: float, shape: float) -> Terms:
    """½ log(λ/2π) + λ/μ − 3/2 log w − λw/(2μ²) − λ/(2w)."""
    constant = 0.5 * math.log(shape / (2 * math.pi)) + shape / mean
    return Terms(constant, {log(1): -1.5, power(1): -0.5 * shape / mean**2, power(-1): -0.5 * shape})
