"""Many draws of a normal tensor in one kernel, and the seeds of kernels that make their own random numbers."""

import torch
from torch import Generator, Tensor


def seed_tensor(device: torch.device, generator: Generator | None = None) -> Tensor:
    """A fresh 62-bit seed as a tensor on `device`: nothing waits for it, and a replayed CUDA graph gets a new one."""
    where = device if generator is None else generator.device
    return torch.randint(2**62, (), device=where, generator=generator).to(device)


BLOCK = 1024


def normal_draws(loc: Tensor, log_scale: Tensor, n: int, generator: Generator | None = None) -> Tensor:
    """w_i = loc + exp(log_scale) ξ_i, i = 1..n, without gradients: (n, *shape)."""
    return torch.ops.bayesify.normal_draws(loc, log_scale, n, seed_tensor(loc.device, generator))


@torch.library.custom_op("bayesify::normal_draws", mutates_args=())
def _draws(loc: Tensor, log_scale: Tensor, n: int, seed: Tensor) -> Tensor:
    generator = torch.Generator(loc.device).manual_seed(int(seed))
    noise = torch.randn((n, *loc.shape), dtype=loc.dtype, device=loc.device, generator=generator)
    return torch.addcmul(loc, log_scale.exp(), noise)


@_draws.register_fake
def _(loc: Tensor, log_scale: Tensor, n: int, seed: Tensor) -> Tensor:
    return loc.new_empty((n, *loc.shape))


@_draws.register_kernel("cuda")
def _(loc: Tensor, log_scale: Tensor, n: int, seed: Tensor) -> Tensor:
    from bayesify.kernels.triton_draws import launch

    return launch(loc, log_scale, n, seed, BLOCK)
