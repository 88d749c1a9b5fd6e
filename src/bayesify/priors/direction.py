"""The prior of the directions of weight normalization."""

from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, number
from bayesify.priors.group_laplace import feature_rows


class Direction(Prior):
    """log p(φ) = −(d/2)(‖φ‖² − 1)² for every feature φ of d entries, a row of the tensor (paper 4, eq. 13).

    It holds the length, which the network's function does not depend on, near a constant: but not 1. In d
    dimensions the radius has density r^{d−1} p, whose mode tends to √((1 + √3)/2) = 1.169 as d grows. `flat` = 1
    adds −(d − 1) log ‖φ‖, and the mode is 1. The constant that would make p a density is left out: it depends on
    d alone.
    `log_prob` takes its value as one tensor; `tensor_log_prob(value, ndim)` takes many draws of one.
    """

    name = "direction"
    about = "−(d/2)(‖φ‖² − 1)² for every feature φ (row) of a tensor"
    independent = False
    refusal = "the direction prior holds the length of features and is known up to a constant"

    def __init__(self, flat: float = 0.0) -> None:
        self.flat = number("flat", flat)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.tensor_log_prob(value, value.dim())

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        rows, d = feature_rows(value, ndim)  # (*draws, features, d)
        square = rows.square().sum(-1)
        energy = 0.5 * d * (square - 1).square()
        if self.flat:
            energy = energy + 0.5 * self.flat * (d - 1) * square.log()
        return -energy.sum(-1)

    @property
    def options(self) -> dict[str, Any]:
        return {"flat": self.flat}
