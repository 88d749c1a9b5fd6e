"""KL(N(μ, σ²) ‖ N(m, s²)) over M draws and its gradient in one kernel; every weight is read once, no noise is stored.

With ξ̄ = z/√M, v = χ²_{M−1}/M and y = μ − m + σ ξ̄ a weight has the value log(s/σ) + (y² + σ² v)/(2s²) − ½ and the
gradients y/s² and (y σ ξ̄ + σ² v)/s² − 1 by μ and log σ. χ² is a polynomial of a second normal number.
"""

import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

from bayesify.kernels.draws import seed_tensor
from bayesify.laws.chi_squared import MANY, chi_squared, quantile_polynomial

TRITON = importlib.util.find_spec("triton") is not None


def available(num_draws: int) -> bool:
    """Is there a kernel for so many draws?"""
    return TRITON and (num_draws == 1 or num_draws > MANY)


def normal_kl_(loc: Tensor, log_scale: Tensor, mean: float, std: float, num_draws: int) -> Tensor:
    """The sum over the entries of two float32 vectors, which become its gradients by them."""
    polynomial = quantile_polynomial(num_draws - 1) if num_draws > 1 else ()
    seed = seed_tensor(loc.device)
    return torch.ops.bayesify.normal_kl_(loc, log_scale, seed, mean, std, num_draws, polynomial)


@torch.library.custom_op("bayesify::normal_kl_", mutates_args=("loc", "log_scale"))
def _kl(
    loc: Tensor,
    log_scale: Tensor,
    seed: Tensor,
    mean: float,
    std: float,
    num_draws: int,
    polynomial: list[float],
) -> Tensor:
    generator = torch.Generator(loc.device).manual_seed(int(seed))
    z = torch.randn(loc.shape, dtype=loc.dtype, device=loc.device, generator=generator)
    chi = chi_squared(num_draws - 1, tuple(loc.shape), loc, generator)
    value, by_loc, by_scale = given_noise(loc, log_scale, z, chi, mean, std, num_draws)
    loc.copy_(by_loc)
    log_scale.copy_(by_scale)
    return value


@_kl.register_fake
def _(loc: Tensor, *rest: Any) -> Tensor:
    return loc.new_empty(())


@_kl.register_kernel("cuda")
def _(*args: Any) -> Tensor:
    from bayesify.kernels.triton_normal_kl import launch

    return launch(*args)


def given_noise(
    loc: Tensor, log_scale: Tensor, z: Tensor, chi: Tensor, mean: float, std: float, num_draws: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernel computes, in plain torch with given normal and χ² numbers: the value and both gradients."""
    scale = log_scale.exp()
    shift = scale * z / math.sqrt(num_draws)
    y = loc - mean + shift
    spread = scale.square() * chi / num_draws
    value = (y.square() + spread) / (2 * std**2) - log_scale + (math.log(std) - 0.5)
    return value.sum(), y / std**2, (y * shift + spread) / std**2 - 1
