"""The group-Laplace prior: whole features are small together."""

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.priors.base import Prior, positive


class GroupLaplace(Prior):
    """p(w_i) ∝ exp(−‖w_i‖ / scale) for every feature w_i, a row of the tensor (paper 4, section 5, scale = 5).

    log p(w_i) = −‖w_i‖/b − d log b − log(2 π^{d/2} Γ(d) / Γ(d/2)), d entries in a feature. A tensor of one
    dimension has features of one entry: then this is the Laplace prior.
    `log_prob` takes its value as one tensor; `tensor_log_prob(value, ndim)` takes many draws of one.
    """

    name = "group_laplace"
    about = "exp(−‖w_i‖/scale) for every feature w_i (row) of a tensor"
    independent = False

    def __init__(self, scale: float = 5.0) -> None:
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.tensor_log_prob(value, value.dim())

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        rows, d = feature_rows(value, ndim)  # (*draws, features, d)
        lengths = rows.abs().squeeze(-1) if d == 1 else torch.linalg.vector_norm(rows, dim=-1)
        area = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d)
        constant = area + math.lgamma(d) + d * math.log(self.scale)
        return -(lengths / self.scale + constant).sum(-1)

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}


def feature_rows(value: Tensor, ndim: int) -> tuple[Tensor, int]:
    """(*draws, features, ...) as (*draws, features, d), and d; below two dimensions every entry is a feature."""
    draws = value.shape[: value.dim() - ndim]
    if ndim < 2:
        return value.reshape(*draws, -1, 1), 1
    rows = value.flatten(len(draws) + 1)
    return rows, rows.shape[-1]
