"""Base noise: draws of standard laws, of the dtype and device of a tensor, drawn where the generator lives."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from bayesify.laws.features import Feature

Shape = tuple[int, ...]


def standard_normal(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """N(0, 1)."""
    if generator is None:
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    noise = torch.randn(shape, dtype=like.dtype, device=generator.device, generator=generator)
    return noise.to(like.device)


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


def standard_uniform(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """U(0, 1), both ends left out."""
    if generator is None:
        noise = torch.rand(shape, dtype=like.dtype, device=like.device)
    else:
        noise = torch.rand(shape, dtype=like.dtype, device=generator.device, generator=generator)
        noise = noise.to(like.device)
    half_step = torch.finfo(like.dtype).eps / 2
    return noise.clamp(min=half_step, max=1 - half_step)


def random_signs(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """±1, each with probability ½."""
    if generator is None:
        coins = torch.randint(0, 2, shape, device=like.device)
    else:
        coins = torch.randint(0, 2, shape, device=generator.device, generator=generator)
    return (2 * coins - 1).to(like.device, like.dtype)


def standard_exponential(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """Exp(1) as (z₁² + z₂²)/2, which resolves small numbers that −log u rounds to 0."""
    first, second = (standard_normal(shape, like, generator) for _ in range(2))
    tiny = torch.finfo(like.dtype).tiny
    return (0.5 * (first.square() + second.square())).clamp(min=tiny)


def standard_gamma(
    concentration: float | Tensor, shape: Shape, like: Tensor, generator: Generator | None
) -> Tensor:
    """Gamma(concentration, 1)."""
    device = like.device if generator is None else generator.device
    dtype = torch.promote_types(like.dtype, torch.float32)  # there is no kernel for half precision
    if isinstance(concentration, Tensor):
        parameter = concentration.detach().to(device, dtype).expand(shape)
    else:
        parameter = torch.full(shape, concentration, dtype=dtype, device=device)
    return torch._standard_gamma(parameter, generator).to(like.device, like.dtype)


def inverse_gaussian(shape: Shape, like: Tensor, concentration: float, generator: Generator | None) -> Tensor:
    """IG(mean 1, concentration λ), by the two roots x and 1/x of λ (x − 1)²/x = z² (Michael, Schucany, Haas 1976)."""
    half = standard_normal(shape, like, generator).square() / (2 * concentration)
    root = 1 / (1 + half + (half * (half + 2)).sqrt())
    return torch.where(standard_uniform(shape, like, generator) * (1 + root) <= 1, root, 1 / root)


LogMoments = Callable[[], tuple[float, float]]


def positive_expectation(
    feature: Feature, moment: Callable[[float], float], log_moments: LogMoments
) -> float | None:
    """E t(ξ) for ξ > 0 from E ξ^p (inf where infinite) and the mean and variance of log ξ."""
    if feature.kind == "log":
        return _log_moment(feature.power, *log_moments())
    return moment(feature.power)


def symmetric_expectation(
    feature: Feature, absolute: Callable[[float], float], log_moments: LogMoments
) -> float | None:
    """E t(ξ) for ξ symmetric about 0 from E |ξ|^p (inf where infinite) and the mean and variance of log |ξ|."""
    p = feature.power
    if feature.kind == "log":
        return _log_moment(p, *log_moments())
    if feature.kind == "power" and p != int(p):
        return None  # ξ^p is no real number where ξ < 0
    size = absolute(p)
    return 0.0 if feature.kind == "power" and p % 2 == 1 and math.isfinite(size) else size


def _log_moment(p: float, mean: float, var: float) -> float | None:
    if p not in (0, 1, 2):
        return None
    return (1.0, mean, var + mean**2)[int(p)]
