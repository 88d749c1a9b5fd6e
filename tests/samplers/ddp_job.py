"""One process of a DDP run that samples: writes its last weights and states to a file of its own."""

import os
import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn

from bayesify.samplers import ATMC
from bayesify.samplers.check import Watch
from bayesify.samplers.common_noise import DIRECTION

STEPS = 43  # of 44, of which the last 22 are looked at


def sample(rank: int, world: int) -> dict[str, torch.Tensor]:
    """Some steps on this rank's share of the batch."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    x, y = torch.randn(STEPS, 8, 4), torch.randn(STEPS, 8, 1)
    model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
    sampler = ATMC(net.parameters(), lr=0.05, num_data=80, mass=80.0, seed=3)
    watch, named = Watch(lambda step: step == 44, 44), {"weight": net.weight, "bias": net.bias}
    torch.manual_seed(100 + rank)  # ranks may draw what they like
    share = slice(rank * 8 // world, (rank + 1) * 8 // world)
    for step, (xb, yb) in enumerate(zip(x, y, strict=True), 1):
        sampler.zero_grad()
        (model(xb[share]) - yb[share]).square().mean().backward()
        watch.before(step, sampler, named)
        sampler.step()
        torch.randn(rank + 1)
    states = sampler.state[net.weight]
    return {
        "weight": net.weight.detach(),
        "xi": states["thermostat"].clone(),
        "widest": states[DIRECTION].clone(),
    }


if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.save(sample(rank, world), folder / f"{world}-{rank}.pt")
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)
