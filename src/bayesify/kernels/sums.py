"""Σ ξ and Σ ξ² over many draws of base noise, without storing the draws.

The laws that have no exact joint draw of the two sums (FORMULAS 2.3): Laplace, logistic, horseshoe, and radial, whose
draws are coupled over the tensor: ε = ρ ξ/‖ξ‖.

Radial in one pass. A tensor of D entries is cut into blocks. The squared norm of a block of ξ is χ² and independent of
its direction, so the norms of all blocks of all draws are drawn first, which gives ‖ξ‖; the kernel then draws the
direction of each block and never needs another block's numbers.
"""

from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals
from bayesify.kernels.draws import seed_tensor

LAWS = ("laplace", "logistic", "horseshoe", "radial")
BLOCK = 256
CHUNK = 2**18  # numbers of noise at once on a CPU: with the temporaries they fit a cache
NORMS = 2**26  # block norms at once on a GPU


def noise_sums(
    law: str, like: Tensor, n: int, generator: Generator | None = None, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(Σᵢ ξᵢ, Σᵢ ξᵢ²) over n draws, each of the shape of `like`.

    noise: the numbers to make ξ of, as `random_numbers` gives them, instead of fresh ones.
    """
    if law != "radial" or not like.is_cuda:
        seed = seed_tensor(like.device, generator)
        return torch.ops.bayesify.noise_sums(like, n, law, seed, None, noise)
    first, second = torch.zeros_like(like), torch.zeros_like(like)
    chunk = max(4, NORMS * BLOCK // like.numel() // 4 * 4)
    for start in range(0, n, chunk):
        part = None if noise is None else noise[start : start + chunk]
        count = min(chunk, n - start)
        norms = radial_norms(like, count, BLOCK, generator) if part is None else block_norms(part, BLOCK)
        seed = seed_tensor(like.device, generator)
        a, b = torch.ops.bayesify.noise_sums(like, norms.shape[0], law, seed, norms, part)
        first, second = first + a, second + b
    return first, second


@torch.library.custom_op("bayesify::noise_sums", mutates_args=())
def _sums(
    like: Tensor, n: int, law: str, seed: Tensor, norms: Tensor | None, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(like.device).manual_seed(int(seed))
    first, second = torch.zeros_like(like), torch.zeros_like(like)
    chunk = max(1, CHUNK // max(like.numel(), 1))
    for start in range(0, n, chunk):
        shape = (min(chunk, n - start), *like.shape)
        if noise is None:
            xi = draw_noise(law, shape, like, generator)
        else:
            xi = noise_of(law, noise.narrow(1 if law == "horseshoe" else 0, start, shape[0]))
        first += xi.sum(0)
        second += xi.square().sum(0)
    return first, second


@_sums.register_fake
def _(like: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(like), torch.empty_like(like)


@_sums.register_kernel("cuda")
def _(
    like: Tensor, n: int, law: str, seed: Tensor, norms: Tensor | None, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    from bayesify.kernels.triton_sums import launch

    return launch(law, like, n, seed, norms, BLOCK, noise)


def radial_norms(like: Tensor, n: int, block: int, generator: Generator | None = None) -> Tensor:
    """ρ ‖ξ_b‖/‖ξ‖ for every draw and every block b of a radial tensor: (n, blocks)."""
    numel = like.numel()
    blocks = -(-numel // block)
    device = like.device if generator is None else generator.device
    concentration = torch.full((n, blocks), block / 2, device=device)
    concentration[:, -1] = (numel - block * (blocks - 1)) / 2
    squares = internals.standard_gamma(concentration, generator)  # χ²/2
    rho = torch.randn(n, 1, device=device, generator=generator)
    return (rho.abs() * (squares / squares.sum(1, keepdim=True)).sqrt()).to(like.device)


def block_norms(noise: Tensor, block: int) -> Tensor:
    """‖ξ_b‖ of every block b of given radial noise: (n, *shape) → (n, blocks)."""
    flat = noise.reshape(noise.shape[0], -1)
    padded = torch.nn.functional.pad(flat, (0, -flat.shape[1] % block))
    return padded.view(noise.shape[0], -1, block).float().norm(dim=2)


def draw_noise(law: str, shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Base noise of a law, stored: (draws, *shape of the tensor)."""
    return noise_of(law, random_numbers(law, shape, like, generator))


def random_numbers(law: str, shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """What ξ of the shape (draws, *shape of the tensor) is made of: for laplace and logistic as many uniform numbers,
    for horseshoe three normal ones, (3, *shape); of radial ξ itself, whose directions the kernel keeps.
    """
    if law == "radial":
        xi = torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
        rho = torch.randn(shape[0], dtype=like.dtype, device=like.device, generator=generator).abs()
        norm = xi.flatten(1).norm(dim=1) if xi.dim() > 1 else xi.abs()
        return xi * (rho / norm).view(-1, *(1,) * (xi.dim() - 1))
    if law == "horseshoe":
        return torch.randn((3, *shape), dtype=like.dtype, device=like.device, generator=generator)
    return torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)


def noise_of(law: str, numbers: Tensor) -> Tensor:
    """ξ of a law from `random_numbers`."""
    if law == "radial":
        return numbers
    if law == "horseshoe":
        a, b, c = numbers
        return a * b.abs() / c.abs().clamp(min=1e-20)  # |b/c| is half-Cauchy
    tiny = torch.finfo(numbers.dtype).eps / 2
    u = numbers.clamp(tiny, 1 - tiny)
    return torch.logit(u) if law == "logistic" else -(u - 0.5).sign() * torch.log1p(-2 * (u - 0.5).abs())
