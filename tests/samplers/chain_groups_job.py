"""Chains over several processes: torchrun … chain_groups_job.py FOLDER NUM_GROUPS."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine import fit_members

BATCH = 16


def make_model() -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    return bf.bayesify(net, bf.ThermostatMCMC(burn_in=4, every=2), num_data=64)


def loader(batch: int = BATCH) -> Loader:
    generator = torch.Generator().manual_seed(0)
    return Loader(Split(torch.randn(64, 3, generator=generator), torch.arange(64) % 2), batch, shuffle=True)


def chains(folder: str | Path, num_groups: int | None = None, batch: int = BATCH) -> bf.BayesianModule | None:
    """Two chains of twelve steps, draws after steps 6, 8, 10 and 12."""
    settings = {"num_members": 2, "num_groups": num_groups, "seed": 7, "epochs": 3, "lr": 1e-2}
    options = {"accelerator": "cpu", "strategy": "ddp", "progress": False}
    return fit_members(make_model, loader(batch), folder=folder, **settings, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    torch.set_num_threads(1)
    groups = int(sys.argv[2])
    chains(sys.argv[1], groups, BATCH // (int(os.environ["WORLD_SIZE"]) // groups))
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)
