"""Families of the form w = loc + scale · ξ: the form, the normal family, and draws of many tensors at once."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import laws
from bayesify import torch_internals as internals
from bayesify.execution import compiling, inside_functorch
from bayesify.families.base import Family, Start, positive
from bayesify.kernels import normal_draws
from bayesify.laws.noise import standard_normal

LOG_STD_OF_NOTHING = -30.0  # a pruned weight's log std: e^-30 ≈ 1e-13, zero for all but its logarithm


class LocationScale(Family):
    """w = loc + scale ξ, entries independent. The centre is loc; the free parameter is log_scale, so that
    scale = exp(log_scale) stays positive.
    """

    moves = True

    def __init__(self, centre: Tensor, log_scale: Tensor) -> None:
        self.loc = self.centre = centre
        self.log_scale = log_scale

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor (× 0.1 for an all-zero tensor)."""
        return Start({"log_scale": starting_log_scale(like, init_std, cls.law)})

    @property
    def scale(self) -> Tensor:
        """exp(log_scale)."""
        return self.log_scale.exp()

    def transform(self, noise: Tensor) -> Tensor:
        """w = loc + scale ξ."""
        return torch.addcmul(self.loc, self.scale, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀((w − loc)/scale) − log scale."""
        return self.noise_log_prob((value - self.loc) / self.scale) - self.log_scale

    @property
    def mean(self) -> Tensor:
        """loc + scale E ξ; the median where there is no mean."""
        centre = self.law.mean()
        return self.loc + self.scale * centre if centre else self.loc

    @property
    def variance(self) -> Tensor:
        """scale² Var ξ."""
        return (2.0 * self.log_scale).exp() * self.law.variance()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale, summed (FORMULAS 2.1)."""
        return self.shape.numel() * self.noise_neg_entropy() - self.log_scale.sum()

    def in_units_of(self, width: Tensor, centre: Tensor | float = 0.0) -> "LocationScale":
        """The law of (w − centre) / width."""
        made = copy.copy(self)
        made.loc = made.centre = (self.loc - centre) / width
        made.log_scale = self.log_scale - width.log()
        return made

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


class Normal(LocationScale):
    """q(w) = N(w; loc, scale²), entries independent; w = loc + scale ξ, ξ ~ N(0, 1)."""

    name = "normal"
    gaussian = True
    symmetric = True
    law = laws.Normal()

    def in_units_of(self, width: Tensor, centre: Tensor | float = 0.0) -> "Normal":
        """A plain normal one, also of those that share their widths."""
        return Normal((self.loc - centre) / width, self.log_scale - width.log())

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale²."""
        return (2.0 * self.log_scale).exp()  # 2.0: torch 2.11 cannot write an integer factor to ONNX

    def rsample(self, n: int | None = None, generator: Generator | None = None) -> Tensor:
        """Many draws that need no gradient are made by one kernel on a GPU."""
        if n is None or not self.loc.is_cuda or torch.is_grad_enabled() or inside_functorch():
            return super().rsample(n, generator)
        return normal_draws(self.loc, self.log_scale, n, generator)

    @classmethod
    def noise_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        """One kernel for all tensors."""
        if compiling():  # the compiler fuses noise and sum of one tensor by itself
            return [torch.randn_like(q.loc) for q in qs]
        return standard_normals([q.loc for q in qs], generator)


def starting_log_scale(like: Tensor, init_std: float, law: laws.Law) -> Tensor:
    """The log of the scale that gives every entry the std init_std × root mean square of the tensor, or that is this
    number itself where ξ has no std."""
    std = positive("init_std", init_std) * root_mean_square(like)
    var = law.variance()
    assert isinstance(var, float)
    return torch.full_like(like, math.log(std / math.sqrt(var) if var < math.inf else std))


def root_mean_square(like: Tensor) -> float:
    """√mean w², or 0.1 for an all-zero tensor: the scale by which starting values are measured."""
    rms = like.float().square().mean().sqrt().item()
    return rms if rms > 0 else 0.1


def standard_normals(likes: Sequence[Tensor], generator: Generator | None) -> list[Tensor]:
    """N(0, 1) noise for many tensors: one kernel, cut into views.

    With a generator each tensor is drawn by itself, so that the numbers do not depend on which tensors are
    drawn together.
    """
    first = likes[0]
    if generator is not None or any(t.dtype != first.dtype or t.device != first.device for t in likes):
        return [standard_normal(tuple(t.shape), t, generator) for t in likes]
    sizes = [-(-t.numel() // 4) * 4 for t in likes]  # views start at multiples of four numbers: aligned reads
    flat = torch.randn(sum(sizes), dtype=first.dtype, device=first.device)
    parts = flat.split(sizes)
    return [part[: t.numel()].view(t.shape) for part, t in zip(parts, likes, strict=True)]


class _DrawAll(torch.autograd.Function):
    """w_j = loc_j + exp(log_scale_j) ξ_j for many tensors j at once.

    ∂w/∂loc = 1 and ∂w/∂log_scale = exp(log_scale) ξ = w − loc, so backward needs no noise, only w.
    """

    @staticmethod
    def forward(ctx: Any, n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        locs, log_scales, noise = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        if compiling():
            weights = [
                (_vector(m) + _vector(s).exp() * e.reshape(-1)).view(m.shape)
                for m, s, e in zip(locs, log_scales, noise, strict=True)
            ]
        else:
            weights = list(internals.foreach_addcmul(locs, internals.foreach_exp(log_scales), noise))
        ctx.n = n
        ctx.save_for_backward(*locs, *weights)
        return tuple(weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        locs, weights = saved[: ctx.n], saved[ctx.n :]
        if compiling():
            by_scale = [
                ((w.reshape(-1) - _vector(m)) * g.reshape(-1)).view(m.shape)
                for w, m, g in zip(weights, locs, grads, strict=True)
            ]
        else:
            by_scale = list(internals.foreach_mul(internals.foreach_sub(weights, locs), grads))
        return (None, *grads, *by_scale, *[None] * ctx.n)


def _vector(parameter: Tensor) -> Tensor:
    """Its numbers in a row, by as_strided: what that reads the compiler leaves in its layout. A parameter of four
    dimensions it would copy into the layout of the convolution, before the draw, and the gradient back after it.
    """
    if not parameter.is_contiguous():
        return parameter.reshape(-1)
    return parameter.as_strided((parameter.numel(),), (1,))
