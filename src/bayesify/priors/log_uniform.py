"""The log-uniform prior."""

from typing import Any

import torch
from torch import Tensor

from bayesify.laws.features import log
from bayesify.priors.base import Prior, Terms, number


class LogUniform(Prior):
    """log p(w) = log_constant − log |w|, on the whole line, entries independent; improper, so a KL to it has a free
    constant.

    With log_constant = 0 the KL of a normal with mean μ and variance σ² → ∞·μ² tends to −½ log 2πe − ½ (γ + log 2) =
    −2.0541 per weight; papers subtract that limit, as log_constant = −2.0541 does. At 0 the density is that of the
    smallest normal number.
    """

    name = "log_uniform"
    about = "1/|w|, improper"

    def __init__(self, log_constant: float = 0.0) -> None:
        self.log_constant = number("log_constant", log_constant)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.log_constant - value.abs().clamp(min=torch.finfo(value.dtype).tiny).log()

    def terms(self) -> Terms:
        return Terms(self.log_constant, {log(1): -1.0})

    @property
    def options(self) -> dict[str, Any]:
        return {"log_constant": self.log_constant}
