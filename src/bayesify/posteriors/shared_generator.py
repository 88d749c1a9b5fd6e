"""The same draws on every process of a group."""

import torch
from torch import Generator
from torch import distributed as dist

from bayesify.execution import compiling


def shared_generator(device: torch.device) -> Generator:
    """A generator in the same state on every rank: rank 0 picks a seed from its own random state.

    Nothing is kept between calls, so a run that restores its random state resumes exactly.
    """
    if compiling():
        raise RuntimeError(
            "same_draws=True needs a generator, which compiled code cannot use: run it eagerly"
        )
    seed = torch.randint(2**62, (1,))
    if dist.is_available() and dist.is_initialized():
        seed = seed.to("cuda" if "nccl" in dist.get_backend() else device)  # NCCL moves nothing on a CPU
        dist.broadcast(seed, src=0)
    return Generator(device).manual_seed(int(seed))
