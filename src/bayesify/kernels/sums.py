"""Σ ξ and Σ ξ² over many draws of base noise, without storing the draws.

The laws that have no exact joint draw of the two sums (FORMULAS 2.3): Laplace, logistic, horseshoe, and radial, whose
draws are coupled over the tensor: ε = ρ ξ/‖ξ‖.

Radial in one pass. A tensor of D entries is cut into blocks. The squared norm of a block of ξ is χ² and independent of
its direction, so the norms of all blocks of all draws are drawn first, which gives ‖ξ‖; the kernel then draws the
direction of each block and never needs another block's numbers.
"""

import math

import torch
from torch import Generator, Tensor

from bayesify.kernels.seeds import seed_tensor

LAWS = ("laplace", "logistic", "horseshoe", "radial")
BLOCK = 256
CHUNK = 2**18  # numbers of noise at once on a CPU: with the temporaries they fit a cache
NORMS = 2**26  # block norms at once on a GPU


def noise_sums(law: str, like: Tensor, n: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """(Σᵢ ξᵢ, Σᵢ ξᵢ²) over n draws, each of the shape of `like`."""
    if law != "radial" or not like.is_cuda:
        return torch.ops.bayesify.noise_sums(like, n, law, seed_tensor(like.device, generator), None)
    first, second = torch.zeros_like(like), torch.zeros_like(like)
    chunk = max(4, NORMS * BLOCK // like.numel() // 4 * 4)
    for start in range(0, n, chunk):
        norms = radial_norms(like, min(chunk, n - start), BLOCK, generator)
        seed = seed_tensor(like.device, generator)
        a, b = torch.ops.bayesify.noise_sums(like, norms.shape[0], law, seed, norms)
        first, second = first + a, second + b
    return first, second


@torch.library.custom_op("bayesify::noise_sums", mutates_args=())
def _sums(like: Tensor, n: int, law: str, seed: Tensor, norms: Tensor | None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(like.device).manual_seed(int(seed))
    first, second = torch.zeros_like(like), torch.zeros_like(like)
    chunk = max(1, CHUNK // max(like.numel(), 1))
    for start in range(0, n, chunk):
        noise = draw_noise(law, (min(chunk, n - start), *like.shape), like, generator)
        first += noise.sum(0)
        second += noise.square().sum(0)
    return first, second


@_sums.register_fake
def _(like: Tensor, n: int, law: str, seed: Tensor, norms: Tensor | None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(like), torch.empty_like(like)


@_sums.register_kernel("cuda")
def _(like: Tensor, n: int, law: str, seed: Tensor, norms: Tensor | None) -> tuple[Tensor, Tensor]:
    from bayesify.kernels.triton_sums import launch

    return launch(law, like, n, seed, norms, BLOCK)


def radial_norms(like: Tensor, n: int, block: int, generator: Generator | None = None) -> Tensor:
    """ρ ‖ξ_b‖/‖ξ‖ for every draw and every block b of a radial tensor: (n, blocks)."""
    numel = like.numel()
    blocks = -(-numel // block)
    device = like.device if generator is None else generator.device
    concentration = torch.full((n, blocks), block / 2, device=device)
    concentration[:, -1] = (numel - block * (blocks - 1)) / 2
    squares = torch._standard_gamma(concentration, generator)  # χ²/2
    rho = torch.randn(n, 1, device=device, generator=generator)
    return (rho.abs() * (squares / squares.sum(1, keepdim=True)).sqrt()).to(like.device)


def draw_noise(law: str, shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Base noise of a law, stored: (draws, *shape of the tensor)."""
    if law == "radial":
        xi = torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
        rho = torch.randn(shape[0], dtype=like.dtype, device=like.device, generator=generator).abs()
        norm = xi.flatten(1).norm(dim=1) if xi.dim() > 1 else xi.abs()
        return xi * (rho / norm).view(-1, *(1,) * (xi.dim() - 1))
    u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
    tiny = torch.finfo(like.dtype).eps / 2
    u = u.clamp(tiny, 1 - tiny)
    if law == "laplace":
        return -(u - 0.5).sign() * torch.log1p(-2 * (u - 0.5).abs())
    if law == "logistic":
        return torch.logit(u)
    z = torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
    return torch.tan(0.5 * math.pi * u) * z
