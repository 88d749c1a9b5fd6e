"""The factorized normal family."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families.base import Family, inside_functorch, standard_normal, standard_normals


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
    def init(cls, like: Tensor, init_std: float = 0.05) -> dict[str, Tensor]:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor (× 0.1 for an all-zero tensor)."""
        rms = like.float().square().mean().sqrt().item()
        start = init_std * (rms if rms > 0 else 0.1)
        return {"log_scale": torch.full_like(like, math.log(start))}

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.loc.shape), self.loc, generator)

    def transform(self, noise: Tensor) -> Tensor:
        return torch.addcmul(self.loc, self.scale, noise)

    @classmethod
    def rsample_all(cls, qs: Sequence["Normal"], generator: Generator | None = None) -> list[Tensor]:
        """The same draws as `rsample`, for all tensors in a handful of kernels."""
        locs = [q.loc for q in qs]
        if inside_functorch():
            return super().rsample_all(qs, generator)
        if torch.compiler.is_compiling():  # the compiler fuses noise and sum of one tensor by itself
            noise = [torch.randn_like(loc) for loc in locs]
        else:
            noise = standard_normals(locs, generator)
        return list(_DrawAll.apply(len(qs), *locs, *(q.log_scale for q in qs), *noise))

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * z.square() - self.log_scale - 0.5 * math.log(2 * math.pi)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (2 * self.log_scale).exp()


class _DrawAll(torch.autograd.Function):
    """w_j = loc_j + exp(log_scale_j) ξ_j for many tensors j at once.

    ∂w/∂loc = 1 and ∂w/∂log_scale = exp(log_scale) ξ = w − loc, so backward needs no noise, only w.
    """

    @staticmethod
    def forward(ctx: Any, n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        locs, log_scales, noise = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        if torch.compiler.is_compiling():
            weights = [m + s.exp() * e for m, s, e in zip(locs, log_scales, noise, strict=True)]
        else:
            weights = list(torch._foreach_addcmul(locs, torch._foreach_exp(log_scales), noise))
        ctx.n = n
        ctx.save_for_backward(*locs, *weights)
        return tuple(weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        locs, weights = saved[: ctx.n], saved[ctx.n :]
        if torch.compiler.is_compiling():
            by_scale = [(w - m) * g for w, m, g in zip(weights, locs, grads, strict=True)]
        else:
            by_scale = list(torch._foreach_mul(torch._foreach_sub(weights, locs), grads))
        return (None, *grads, *by_scale, *[None] * ctx.n)
