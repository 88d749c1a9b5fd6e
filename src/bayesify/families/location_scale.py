"""Families of the form w = loc + scale · ξ."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from bayesify.families.base import Family, Start, inside_functorch, positive
from bayesify.laws.features import power

LOG_STD_OF_NOTHING = -30.0  # a pruned weight's log std: e^-30 ≈ 1e-13, zero for all but its logarithm


class LocationScale(Family):
    """w = loc + scale ξ, entries independent. The centre is loc; the free parameter is log_scale, so that
    scale = exp(log_scale) stays positive.
    """

    #: the standard deviation of ξ, by which the starting scale is set; 1 where it has none
    noise_std: ClassVar[float] = 1.0

    def __init__(self, centre: Tensor, log_scale: Tensor) -> None:
        self.loc = centre
        self.log_scale = log_scale

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor (× 0.1 for an all-zero tensor)."""
        return Start({"log_scale": starting_log_scale(like, init_std, cls.noise_std)})

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    @property
    def shape(self) -> torch.Size:
        return self.loc.shape

    def transform(self, noise: Tensor) -> Tensor:
        return torch.addcmul(self.loc, self.scale, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀((w − loc)/scale) − log scale."""
        return self.noise_log_prob((value - self.loc) / self.scale) - self.log_scale

    @property
    def mean(self) -> Tensor:
        centre = self.expectation(power(1))
        assert centre is not None
        return self.loc + self.scale * centre if centre else self.loc

    @property
    def variance(self) -> Tensor:
        first, second = self.expectation(power(1)), self.expectation(power(2))
        assert first is not None and second is not None
        return (2.0 * self.log_scale).exp() * (second - first**2)

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale, summed (FORMULAS 2.1)."""
        return self.shape.numel() * self.noise_neg_entropy() - self.log_scale.sum()

    @classmethod
    def rsample_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        """The same draws as `rsample`, for all tensors in a handful of kernels."""
        if inside_functorch():
            return super().rsample_all(qs, generator)
        noise = cls.noise_all(qs, generator)
        return list(_DrawAll.apply(len(qs), *(q.loc for q in qs), *(q.log_scale for q in qs), *noise))

    @classmethod
    def noise_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        """Base noise of many tensors; families override it where one kernel does for all."""
        return [q.noise(generator=generator) for q in qs]


def starting_log_scale(like: Tensor, init_std: float, noise_std: float) -> Tensor:
    """The log of the scale that gives every entry the std init_std × root mean square of the tensor."""
    std = positive("init_std", init_std) * root_mean_square(like)
    return torch.full_like(like, math.log(std / noise_std))


def root_mean_square(like: Tensor) -> float:
    """√mean w², or 0.1 for an all-zero tensor: the scale by which starting values are measured."""
    rms = like.float().square().mean().sqrt().item()
    return rms if rms > 0 else 0.1


class _DrawAll(torch.autograd.Function):
    """w_j = loc_j + exp(log_scale_j) ξ_j for many tensors j at once.

    ∂w/∂loc = 1 and ∂w/∂log_scale = exp(log_scale) ξ = w − loc, so backward needs no noise, only w.
    """

    @staticmethod
    def forward(ctx: Any, n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        locs, log_scales, noise = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        if torch.compiler.is_compiling():
            weights = [
                (_vector(m) + _vector(s).exp() * e.reshape(-1)).view(m.shape)
                for m, s, e in zip(locs, log_scales, noise, strict=True)
            ]
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
            by_scale = [
                ((w.reshape(-1) - _vector(m)) * g.reshape(-1)).view(m.shape)
                for w, m, g in zip(weights, locs, grads, strict=True)
            ]
        else:
            by_scale = list(torch._foreach_mul(torch._foreach_sub(weights, locs), grads))
        return (None, *grads, *by_scale, *[None] * ctx.n)


def _vector(parameter: Tensor) -> Tensor:
    """Its numbers in a row, by as_strided: what that reads the compiler leaves in its layout. A parameter of four
    dimensions it would copy into the layout of the convolution, before the draw, and the gradient back after it.
    """
    return (
        parameter.as_strided((parameter.numel(),), (1,))
        if parameter.is_contiguous()
        else parameter.reshape(-1)
    )
