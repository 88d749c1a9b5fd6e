"""Σ_j KL(q_j ‖ p) over many tensors j; for normal posteriors and priors in a handful of kernels."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesify import families, priors
from bayesify import torch_internals as internals
from bayesify.divergences.exact import exact
from bayesify.divergences.statistics import Draws
from bayesify.execution import transformed
from bayesify.kernels.normal_kl import available, normal_kl_
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.noise import standard_normal

Key = TypeVar("Key")
Value = TypeVar("Value", bound=Hashable)
#: Σ_j KL(q_j ‖ p) of tensors of one family, with everything but their distributions decided
KL = Callable[[Sequence[families.Family]], Tensor]


def by_value(values: Mapping[Key, Value]) -> dict[Value, list[Key]]:
    """The keys that have equal values."""
    groups: dict[Value, list[Key]] = {}
    for key, value in values.items():
        groups.setdefault(value, []).append(key)
    return groups


def one_by_one(
    kl: Callable[..., Tensor], rest: tuple[Any, ...], qs: Sequence[families.Family], **options: Any
) -> Tensor:
    """Σ_j kl(q_j, *rest), for a pair that has no form for many tensors."""
    return torch.stack([kl(q, *rest, **options) for q in qs]).sum()


def normal_normal_exact(qs: Sequence[families.Normal], p: priors.Normal, draws: Draws) -> Tensor:
    """Σ log(s/σ) + (σ² + (μ − m)²)/(2s²) − ½."""
    if _plain(qs):
        return torch.stack([exact(q, p, draws) for q in _vectors_joined(qs)]).sum()
    return _Exact.apply(p.loc, p.std, *(q.loc for q in qs), *(q.log_scale for q in qs))


def normal_normal_repar(qs: Sequence[families.Normal], p: priors.Normal, draws: Draws) -> Tensor:
    """Σ log(s/σ) + (y² + σ² v)/(2s²) − ½ with y = μ − m + σ ξ̄, ξ̄ = z/√M and v = χ²_{M−1}/M.

    It is the tuple of the pair: mean (w − m)² = (μ − m)² + 2(μ − m)σ ξ̄ + σ² mean ξ², and mean ξ² = ξ̄² + v.
    """
    if _one_kernel(qs, draws):
        return _fused(qs, p, draws.num)
    if _plain(qs):
        return torch.stack([_repar(q, p, draws) for q in qs]).sum()
    locs, log_scales = [q.loc for q in qs], [q.log_scale for q in qs]
    length = sum(_aligned(t) for t in locs)
    with torch.no_grad():
        z = _cut(standard_normal((length,), locs[0], draws.generator), locs)
        chi = []
        if draws.num > 1:
            chi = _cut(chi_squared(draws.num - 1, (length,), locs[0], draws.generator), locs)
    return _Repar.apply(p.loc, p.std, draws.num, len(qs), *locs, *log_scales, *z, *chi)


def _repar(q: families.Normal, p: priors.Normal, draws: Draws) -> Tensor:
    """`normal_normal_repar` of one tensor in plain operations, which the compiler fuses."""
    mean = standard_normal(tuple(q.shape), q.loc, draws.generator) / math.sqrt(draws.num)
    var = chi_squared(draws.num - 1, tuple(q.shape), q.loc, draws.generator) / draws.num
    scale = q.scale
    quadratic = (q.loc - p.loc + scale * mean).square() + scale.square() * var
    return (quadratic / (2 * p.std**2) - q.log_scale).sum() + q.shape.numel() * (math.log(p.std) - 0.5)


def _one_kernel(qs: Sequence[families.Normal], draws: Draws) -> bool:
    """Does a kernel make noise, value and gradients of all tensors: plain float32 on one CUDA device?"""
    first = qs[0].loc
    if not first.is_cuda or draws.generator is not None or not available(draws.num) or _functorch():
        return False
    tensors = [*(q.loc for q in qs), *(q.log_scale for q in qs)]
    plain = all(type(t) in (Tensor, Parameter) and t.dtype == torch.float32 for t in tensors)
    return plain and all(t.device == first.device for t in tensors)


@internals.constant_when_traced  # asked while tracing, where vmap is entered too
def _functorch() -> bool:
    return internals.peek_interpreter_stack() is not None


def _fused(qs: Sequence[families.Normal], p: priors.Normal, num_draws: int) -> Tensor:
    """Tensors of whole groups of four numbers come first, so that their gradients are aligned views."""
    qs = sorted(qs, key=lambda q: q.loc.numel() % 4 != 0)
    return _Fused.apply(p.loc, p.std, num_draws, *(q.loc for q in qs), *(q.log_scale for q in qs))


class _Fused(torch.autograd.Function):
    """All tensors as two vectors, in whose place the kernel writes the gradients: 2 numbers a weight, any M."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        # Without gradients the compiler leaves out ctx where the arguments are as many as named here: never.
        mean, std, num_draws, *tensors = arguments
        ctx.shapes = [t.shape for t in tensors[: len(tensors) // 2]]
        n = len(ctx.shapes)
        loc, log_scale = (torch.cat([t.reshape(-1) for t in part]) for part in (tensors[:n], tensors[n:]))
        value = normal_kl_(loc, log_scale, mean, std, num_draws)
        ctx.save_for_backward(loc, log_scale)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        sizes = [shape.numel() for shape in ctx.shapes]
        cut = [
            part if len(shape) == 1 else part.view(shape)  # most tensors of a network are vectors
            for gradient in ctx.saved_tensors
            for part, shape in zip((gradient * grad).split(sizes), ctx.shapes, strict=True)
        ]
        return (None, None, None, *cut)


def _plain(qs: Sequence[families.Normal]) -> bool:
    """Are multi-tensor kernels of no use: compiled code, torch.func, tensors of several kinds?"""
    if transformed():
        return True
    first = qs[0].loc
    return any(q.loc.dtype != first.dtype or q.loc.device != first.device for q in qs)


def _vectors_joined(qs: Sequence[families.Normal]) -> list[families.Normal]:
    """`qs` with all vectors (biases, norm layers) as one: a third of the work of compiling a transformer's KL."""
    vectors, others = [q for q in qs if q.loc.dim() == 1], [q for q in qs if q.loc.dim() != 1]
    first = qs[0].loc
    if len(vectors) < 2 or any(q.loc.dtype != first.dtype or q.loc.device != first.device for q in vectors):
        return list(qs)
    joined = families.Normal(torch.cat([q.loc for q in vectors]), torch.cat([q.log_scale for q in vectors]))
    return [joined, *others]


def _aligned(tensor: Tensor) -> int:
    return -(-tensor.numel() // 4) * 4  # views start at multiples of four numbers: aligned reads


def _cut(flat: Tensor, likes: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat` of the shape of each tensor."""
    parts = flat.split([_aligned(t) for t in likes])
    return [part[: t.numel()].view(t.shape) for part, t in zip(parts, likes, strict=True)]


class _Exact(torch.autograd.Function):
    """∂KL/∂μ = (μ − m)/s², ∂KL/∂log σ = σ²/s² − 1."""

    @staticmethod
    def forward(ctx: Any, mean: float, std: float, *tensors: Tensor) -> Tensor:
        n = len(tensors) // 2
        locs, log_scales = tensors[:n], tensors[n:]
        ctx.mean, ctx.std = mean, std
        ctx.save_for_backward(*tensors)
        shifted = internals.foreach_sub(locs, mean) if mean else locs
        scales = internals.foreach_exp(log_scales)
        squares = _sum_of_squares(shifted) + _sum_of_squares(scales)
        return squares / (2 * std**2) - _sum(log_scales, squares.dtype) + _count(locs) * (math.log(std) - 0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        n = len(saved) // 2
        locs, log_scales = saved[:n], saved[n:]
        shifted = internals.foreach_sub(locs, ctx.mean) if ctx.mean else locs
        by_loc = internals.foreach_mul(shifted, grad / ctx.std**2)
        variances = internals.foreach_exp(internals.foreach_mul(log_scales, 2.0))
        relative = internals.foreach_div(variances, ctx.std**2)
        by_scale = internals.foreach_mul(internals.foreach_sub(relative, 1.0), grad)
        return (None, None, *by_loc, *by_scale)


class _Repar(torch.autograd.Function):
    """∂KL/∂μ = y/s², ∂KL/∂log σ = (y σ ξ̄ + σ² v)/s² − 1; both are kept from forward: 2 numbers a weight, any M."""

    @staticmethod
    def forward(ctx: Any, mean: float, std: float, m: int, n: int, *tensors: Tensor) -> Tensor:
        locs, log_scales, z, chi = (tensors[i * n : (i + 1) * n] for i in range(4))
        scales = internals.foreach_exp(log_scales)
        y = internals.foreach_addcmul(locs, scales, z, value=1 / math.sqrt(m))
        by_scale = internals.foreach_sub(y, locs)  # σ ξ̄
        if mean:
            internals.foreach_sub_(y, mean)
        internals.foreach_mul_(by_scale, y)
        squares = _sum_of_squares(y)
        if chi:
            internals.foreach_mul_(scales, scales)
            internals.foreach_mul_(scales, chi)  # m σ² v ≥ 0
            squares = squares + norms(scales, 1).sum() / m
            internals.foreach_add_(by_scale, scales, alpha=1 / m)
        ctx.std = std
        ctx.save_for_backward(*y, *by_scale)
        return squares / (2 * std**2) - _sum(log_scales, squares.dtype) + _count(locs) * (math.log(std) - 0.5)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        n = len(saved) // 2
        by_loc = internals.foreach_mul(saved[:n], grad / ctx.std**2)
        by_scale = internals.foreach_mul(saved[n:], grad / ctx.std**2)
        internals.foreach_add_(by_scale, grad, alpha=-1)
        return (*[None] * 4, *by_loc, *by_scale, *[None] * (len(ctx.needs_input_grad) - 4 - 2 * n))


def norms(tensors: Sequence[Tensor], order: int = 2) -> Tensor:
    """(Σ |x|^order)^{1/order} of every tensor, in float32 at least: (tensors,)."""
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    # said only where it is another: torch 2.15 takes it for a dimension where tensors are sharded
    options = {} if all(t.dtype == dtype for t in tensors) else {"dtype": dtype}
    return torch.stack(internals.foreach_norm(list(tensors), order, **options))


def _sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    return norms(tensors).square().sum()


def _sum(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.stack([tensor.sum(dtype=dtype) for tensor in tensors]).sum()


def _count(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


#: (estimator, family, prior) -> the KL of many tensors at once
MULTI_TENSOR: dict[tuple[str, type, type], Callable[..., Tensor]] = {
    ("exact", families.Normal, priors.Normal): normal_normal_exact,
    ("repar", families.Normal, priors.Normal): normal_normal_repar,
}
