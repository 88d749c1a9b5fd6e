"""Draws that laws are made of, of the dtype and device of a tensor, drawn where the generator lives."""

from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals

Shape = tuple[int, ...]


def drawn(draw: Any, shape: Shape, like: Tensor, generator: Generator | None, dtype: torch.dtype) -> Tensor:
    """draw(shape), by torch.randn or torch.rand, where the generator lives, on the device of `like`.

    torch takes no sizes that are symbols (compiled code) beside `generator=`, so that it is left out where there is
    none.
    """
    if generator is None:
        return draw(shape, dtype=dtype, device=like.device)
    return draw(shape, dtype=dtype, device=generator.device, generator=generator).to(like.device)


def standard_normal(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """N(0, 1)."""
    return drawn(torch.randn, shape, like, generator, like.dtype)


def standard_uniform(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """U(0, 1), both ends left out."""
    noise = drawn(torch.rand, shape, like, generator, like.dtype)
    half_step = torch.finfo(like.dtype).eps / 2
    return noise.clamp(min=half_step, max=1 - half_step)


def random_signs(shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """±1, each with probability ½."""
    coins = drawn(partial(torch.randint, 0, 2), shape, like, generator, torch.long)
    return (2 * coins - 1).to(like.dtype)


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
