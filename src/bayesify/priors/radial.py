"""The radial prior: one density of the whole tensor."""

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.priors.base import Prior, number, positive


class Radial(Prior):
    """w = loc + scale ρ z/‖z‖, ρ = |N(0, 1)|, z standard normal of the whole tensor (D entries).

    log p(w) = −D log s + ½ log(2/π) − r²/2 − log(2π^{D/2}/Γ(D/2)) − (D − 1) log r, r = ‖(w − m)/s‖ (FORMULAS 2.2).
    `log_prob` takes its value as one tensor; `tensor_log_prob(value, ndim)` takes many draws of one.
    """

    name = "radial"
    about = "loc + scale ρ z/‖z‖, ρ = |N(0, 1)|, z normal of the whole tensor"
    independent = False

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.tensor_log_prob(value, value.dim())

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        size = math.prod(value.shape[value.dim() - ndim :])
        z = (value - self.loc) / self.scale
        r = torch.linalg.vector_norm(z, dim=tuple(range(-ndim, 0))) if ndim else z.abs()
        area = math.log(2) + 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size)
        constant = 0.5 * math.log(2 / math.pi) - area - size * math.log(self.scale)
        density = constant - 0.5 * r.square()
        return density - (size - 1) * r.log() if size > 1 else density

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale}
