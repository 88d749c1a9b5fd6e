"""Priors of whole tensors, whose entries are not independent."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesify import laws
from bayesify.laws.base import where_inside
from bayesify.laws.special import log_sphere_area
from bayesify.priors.base import Prior, number, positive, share

TOLERANCE = 1e-4  # of the sum of a point of the simplex


class Joint(Prior):
    """A density of a whole tensor. `log_prob` takes its value as one tensor, `tensor_log_prob` many draws of one."""

    independent = False

    def log_prob(self, value: Tensor) -> Tensor:
        """log p of `value` as a whole: a scalar."""
        return self.tensor_log_prob(value, value.dim())

    @abstractmethod
    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """log p of whole tensors of `ndim` dimensions: (*draws, *shape) → (*draws)."""


class Radial(Joint):
    """w = loc + scale ρ z/‖z‖, ρ = |N(0, 1)|, z standard normal of the whole tensor (D entries).

    log p(w) = −D log s + ½ log(2/π) − r²/2 − log(2π^{D/2}/Γ(D/2)) − (D − 1) log r, r = ‖(w − m)/s‖ (FORMULAS 2.2).

    loc:   m, the centre
    scale: s, the width, above 0
    """

    name = "radial"

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """log p₀((w − m)/s) − D log s: (*draws, *shape) → (*draws)."""
        law = laws.Radial(tuple(value.shape[value.dim() - ndim :]))
        return law.log_prob((value - self.loc) / self.scale) - law.size * math.log(self.scale)


class GroupLaplace(Joint):
    """p(w_i) ∝ exp(−‖w_i‖ / scale) for every feature w_i, a row of the tensor (paper 4, section 5, scale = 5).

    log p(w_i) = −‖w_i‖/b − d log b − log(2 π^{d/2} Γ(d) / Γ(d/2)), d entries in a feature. A tensor of one
    dimension has features of one entry: then this is the Laplace prior.

    scale: b, above 0
    """

    name = "group_laplace"

    def __init__(self, scale: float = 5.0) -> None:
        self.scale = positive("scale", scale)

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """Σ_i log p(w_i): (*draws, *shape) → (*draws)."""
        rows, d = feature_rows(value, ndim)  # (*draws, features, d)
        lengths = rows.abs().squeeze(-1) if d == 1 else torch.linalg.vector_norm(rows, dim=-1)
        constant = log_sphere_area(d) + math.lgamma(d) + d * math.log(self.scale)
        return -(lengths / self.scale + constant).sum(-1)


class Direction(Joint):
    """log p(φ) = −(d/2)(‖φ‖² − 1)² for every feature φ of d entries, a row of the tensor (paper 4, eq. 13).

    It holds the length, which the network's function does not depend on, near a constant: but not 1. In d
    dimensions the radius has density r^{d−1} p, whose mode tends to √((1 + √3)/2) = 1.169 as d grows. `flat` = 1
    adds −(d − 1) log ‖φ‖, and the mode is 1. The constant that would make p a density is left out: it depends on
    d alone.

    flat: 0 as in the paper, 1 for directions of length 1
    """

    name = "direction"
    refusal = "the direction prior holds the length of features and is known up to a constant"

    def __init__(self, flat: float = 0.0) -> None:
        self.flat = share("flat", flat)

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """Σ log p(φ): (*draws, *shape) → (*draws)."""
        rows, d = feature_rows(value, ndim)  # (*draws, features, d)
        square = rows.square().sum(-1)
        energy = 0.5 * d * (square - 1).square()
        if self.flat:
            energy = energy + 0.5 * self.flat * (d - 1) * square.log()
        return -energy.sum(-1)


class Dirichlet(Prior):
    """p(w) = Γ(Σa) Π w_j^{a_j − 1}/Γ(a_j) over the last dimension, on the simplex w_j > 0, Σ w_j = 1.

    concentration: a, one number for all entries or one for each. Independent weights never lie on the simplex, so
    there is no finite KL to this prior (FORMULAS 2.2).
    """

    name = "dirichlet"
    lower = 0.0
    independent = False
    refusal = "independent weights do not lie on the simplex (entries of the last dimension that sum to one)"

    def __init__(self, concentration: float | Sequence[float] = 1.0) -> None:
        self.concentration: float | list[float]
        if isinstance(concentration, list | tuple):
            self.concentration = [positive("concentration", a) for a in concentration]
        else:
            self.concentration = positive("concentration", concentration)

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
        return where_inside(value, outside[..., None], lambda w: constant / size + powers * w.log()).sum(-1)

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """The sum over all rows: (*draws, *shape) → (*draws)."""
        rows = self.log_prob(value)
        return rows.flatten(rows.dim() - ndim + 1).sum(-1) if ndim > 1 else rows


def feature_rows(value: Tensor, ndim: int) -> tuple[Tensor, int]:
    """(*draws, features, ...) as (*draws, features, d), and d; below two dimensions every entry is a feature."""
    draws = value.shape[: value.dim() - ndim]
    if ndim < 2:
        return value.reshape(*draws, -1, 1), 1
    rows = value.flatten(len(draws) + 1)
    return rows, rows.shape[-1]
