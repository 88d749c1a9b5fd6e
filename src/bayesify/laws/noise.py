"""Draws that laws are made of, of the dtype and device of a tensor, drawn where the generator lives."""

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals

Shape = tuple[int, ...]


def standard_normal(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """N(0, 1)."""
    if generator is None:
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    noise = torch.randn(shape, dtype=like.dtype, device=generator.device, generator=generator)
    return noise.to(like.device)


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
    return internals.standard_gamma(parameter, generator).to(like.device, like.dtype)
