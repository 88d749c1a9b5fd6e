"""The scale-mixture normal prior."""

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.priors.base import Prior, number, positive


class NormalMixture(Prior):
    """p(w) = π N(w; 0, s₁²) + (1 − π) N(w; 0, s₂²), π the option `mix`; entries independent (Blundell et al. 2015)."""

    name = "normal_mixture"
    about = "mix N(0, std1²) + (1 − mix) N(0, std2²)"

    def __init__(self, mix: float = 0.5, std1: float = 1.0, std2: float = 0.0025) -> None:
        self.mix = number("mix", mix)
        if not 0 < self.mix < 1:
            raise ValueError(
                f"prior mix={mix!r} must lie between 0 and 1; for one component use prior='normal'"
            )
        self.std1 = positive("std1", std1)
        self.std2 = positive("std2", std2)

    def log_prob(self, value: Tensor) -> Tensor:
        first = self._component(value, self.mix, self.std1)
        return torch.logaddexp(first, self._component(value, 1 - self.mix, self.std2))

    @staticmethod
    def _component(value: Tensor, weight: float, std: float) -> Tensor:
        constant = math.log(weight) - math.log(std) - 0.5 * math.log(2 * math.pi)
        return constant - 0.5 * (value / std).square()

    @property
    def options(self) -> dict[str, Any]:
        return {"mix": self.mix, "std1": self.std1, "std2": self.std2}
