"""Seeds for kernels that make their own random numbers."""

import torch
from torch import Generator, Tensor


def seed_tensor(device: torch.device, generator: Generator | None = None) -> Tensor:
    """A fresh 62-bit seed as a tensor on `device`: nothing waits for it, and a replayed CUDA graph gets a new one."""
    where = device if generator is None else generator.device
    return torch.randint(2**62, (), device=where, generator=generator).to(device)
