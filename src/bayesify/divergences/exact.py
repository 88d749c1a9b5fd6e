"""Exact KL(q ‖ p) for the pairs that have one."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify import families, priors

EXACT: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def exact(family: type, prior: type) -> Callable[[Callable], Callable]:
    """Register the exact KL of a pair."""

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        EXACT[family, prior] = function
        return function

    return register


ALL: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def all_at_once(family: type, prior: type) -> Callable[[Callable], Callable]:
    """Register the exact KL of many tensors of a pair, in fewer kernels than one by one."""

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        ALL[family, prior] = function
        return function

    return register


@exact(families.Normal, priors.Normal)
def normal_normal(q: families.Normal, p: priors.Normal) -> Tensor:
    """Σ log(s/σ) + (σ² + (μ − m)²) / (2 s²) − ½, with q = N(μ, σ²) and p = N(m, s²)."""
    quadratic = (q.variance + (q.loc - p.mean).square()) / (2 * p.std**2)
    return (quadratic - q.log_scale).sum() + q.loc.numel() * (math.log(p.std) - 0.5)


@all_at_once(families.Normal, priors.Normal)
def normal_normal_all(qs: Sequence[families.Normal], p: priors.Normal) -> Tensor:
    """`normal_normal` summed over many tensors."""
    return _NormalNormal.apply(p.mean, p.std, *(q.loc for q in qs), *(q.log_scale for q in qs))


class _NormalNormal(torch.autograd.Function):
    """The sum of `normal_normal`; ∂KL/∂μ = (μ − m)/s², ∂KL/∂log σ = σ²/s² − 1."""

    @staticmethod
    def forward(ctx: Any, mean: float, std: float, *tensors: Tensor) -> Tensor:
        n = len(tensors) // 2
        locs, log_scales = tensors[:n], tensors[n:]
        ctx.mean, ctx.std = mean, std
        ctx.save_for_backward(*tensors)
        shifted = torch._foreach_sub(locs, mean) if mean else locs
        scales = torch._foreach_exp(log_scales)
        squares = _sum_of_squares(shifted) + _sum_of_squares(scales)
        logs = torch.stack([log_scale.sum(dtype=squares.dtype) for log_scale in log_scales]).sum()
        count = sum(loc.numel() for loc in locs)
        return squares / (2 * std**2) - logs + count * (math.log(std) - 0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        n = len(saved) // 2
        locs, log_scales = saved[:n], saved[n:]
        shifted = torch._foreach_sub(locs, ctx.mean) if ctx.mean else locs
        by_loc = torch._foreach_mul(shifted, grad / ctx.std**2)
        variances = torch._foreach_exp(torch._foreach_mul(log_scales, 2.0))
        by_scale = torch._foreach_mul(
            torch._foreach_sub(torch._foreach_div(variances, ctx.std**2), 1.0), grad
        )
        return (None, None, *by_loc, *by_scale)


def _sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return torch.stack(torch._foreach_norm(list(tensors), 2, dtype=dtype)).square().sum()
