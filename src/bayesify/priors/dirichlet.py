"""The Dirichlet prior."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.priors.base import Prior, positive, where_inside

TOLERANCE = 1e-4  # of the sum of a point of the simplex


class Dirichlet(Prior):
    """p(w) = Γ(Σa) Π w_j^{a_j − 1}/Γ(a_j) over the last dimension, on the simplex w_j > 0, Σ w_j = 1.

    concentration: a, one number for all entries or one for each. Independent weights never lie on the simplex, so
    there is no finite KL to this prior (FORMULAS 2.2).
    """

    name = "dirichlet"
    about = "Dirichlet(concentration) over the last dimension; no KL: independent weights leave the simplex"
    independent = False
    refusal = "independent weights do not lie on the simplex (entries of the last dimension that sum to one)"

    def __init__(self, concentration: float | Sequence[float] = 1.0) -> None:
        self.concentration: float | list[float]
        if isinstance(concentration, list | tuple):
            self.concentration = [positive("concentration", a) for a in concentration]
        else:
            self.concentration = positive("concentration", concentration)

    @property
    def lower(self) -> float:
        return 0.0

    def log_prob(self, value: Tensor) -> Tensor:
        """(*, K) → (*)."""
        size = value.shape[-1]
        given = self.concentration if isinstance(self.concentration, list) else [self.concentration] * size
        if len(given) != size:
            raise ValueError(
                f"prior concentration has {len(given)} entries, the last dimension of the value {size}: "
                "give one number, or one for each entry"
            )
        constant = math.lgamma(sum(given)) - sum(math.lgamma(a) for a in given)
        powers = torch.tensor(given, dtype=value.dtype, device=value.device) - 1
        outside = (value <= 0).any(-1) | ((value.sum(-1) - 1).abs() > TOLERANCE)
        return where_inside(value, outside[..., None], lambda w: constant / size + powers * w.log(), 1.0).sum(
            -1
        )

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        rows = self.log_prob(value)
        return rows.flatten(rows.dim() - ndim + 1).sum(-1) if ndim > 1 else rows

    @property
    def options(self) -> dict[str, Any]:
        return {"concentration": self.concentration}
