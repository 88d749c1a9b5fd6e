"""The factorized normal family."""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families.base import Family, standard_normal


class Normal(Family):
    """q(w) = N(w; loc, scale²), entries independent; w = loc + scale ξ, ξ ~ N(0, 1).

    The free parameter is log_scale, so that scale = exp(log_scale) stays positive.
    """

    name = "normal"
    gaussian = True
    symmetric = True

    def __init__(self, loc: Tensor, log_scale: Tensor) -> None:
        self.loc = loc
        self.log_scale = log_scale

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, **_: Any) -> dict[str, Tensor]:
        """Starting std = `init_std` × root mean square of the tensor (× 0.1 for an all-zero tensor)."""
        rms = like.float().square().mean().sqrt().item()
        start = init_std * (rms if rms > 0 else 0.1)
        return {"log_scale": torch.full_like(like, math.log(start))}

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.loc.shape), self.loc, generator)

    def transform(self, noise: Tensor) -> Tensor:
        return torch.addcmul(self.loc, self.scale, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * z.square() - self.log_scale - 0.5 * math.log(2 * math.pi)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (2 * self.log_scale).exp()
