"""The normal prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior


class Normal(Prior):
    """p(w) = N(w; mean, std²), entries independent."""

    name = "normal"

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        if not std > 0:
            raise ValueError(f"prior std={std!r} must be positive")
        self.mean = float(mean)
        self.std = float(std)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.mean) / self.std
        return -0.5 * z.square() - math.log(self.std) - 0.5 * math.log(2 * math.pi)

    @property
    def options(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std}
