"""Normal families of variance networks: what they have in common (paper 5)."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families.noise import standard_normal
from bayesify.families.normal import Normal


class VarianceNormal(Normal):
    """q(w) = N(g c, h² s²), entries independent; c is the centre, s the `spread` of the family.

    The gates g (`mean_gate`) and h (`noise_gate`) are 0 or 1, one number for the tensor or one for each weight. They
    do not train: g = 0 is the swap to zero mean (eq. 11), h = 0 fixes a weight at its mean, both 0 zero it.
    """

    def __init__(self, centre: Tensor, mean_gate: Tensor, noise_gate: Tensor) -> None:
        self.centre = centre
        self.mean_gate = mean_gate
        self.noise_gate = noise_gate

    @property
    @abstractmethod
    def spread(self) -> Tensor:
        """s, the standard deviation up to its sign, a smooth function of the parameters; in float32 at least."""

    @property
    @abstractmethod
    def ratio(self) -> Tensor:
        """|c|/|s| without the gates, in float32 at least; of a smaller shape than the weight where it is shared."""

    @property
    def loc(self) -> Tensor:  # type: ignore[override]
        return self.centre * self.mean_gate

    @property
    def shape(self) -> torch.Size:
        return self.centre.shape

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.shape), self.centre, generator)

    @property
    def scale(self) -> Tensor:
        return self._gated_spread.abs()

    @property
    def log_scale(self) -> Tensor:  # type: ignore[override]
        return self.scale.clamp_min(torch.finfo(self.centre.dtype).tiny).log()

    def transform(self, noise: Tensor) -> Tensor:
        return torch.addcmul(self.loc, self._gated_spread, noise)

    @property
    def variance(self) -> Tensor:
        return self._gated_spread.square()

    @property
    def _gated_spread(self) -> Tensor:
        """h s in the precision of the weights."""
        return (self.spread * self.noise_gate).to(self.centre.dtype)

    @classmethod
    def rsample_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        return [q.rsample(generator=generator) for q in qs]  # without log_scale, which gates make infinite


def wide(values: Tensor) -> Tensor:
    """Half precision as float32, before an exponential is taken: in bfloat16 it would be off by half a per cent."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def open_gates(like: Tensor) -> dict[str, Tensor]:
    """Both gates at 1."""
    return {
        name: torch.ones((), dtype=like.dtype, device=like.device) for name in ("mean_gate", "noise_gate")
    }
