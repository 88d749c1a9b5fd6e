"""Members over several processes: torchrun … members_job.py FOLDER WHAT."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from training_job import data

import bayesify as bf
from bayesify.data import Loader
from bayesify.engine import fit_members, split_processes

SEED = 5
WORLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def make_model() -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 2))
    return bf.bayesify(net, bf.MonteCarloVI(), num_data=200)


def loaders(batch_size: int = 16) -> tuple[Loader, Loader]:
    return Loader(data().train, batch_size, shuffle=True), Loader(data().test, 40)


def train(folder: str | Path, num_members: int, **options: Any) -> bf.BayesianModule | None:
    settings: dict[str, Any] = {"seed": SEED, "epochs": 2, "recipe": None, "progress": False}
    settings["accelerator"] = "cpu"
    return fit_members(make_model, *loaders(), num_members=num_members, folder=folder, **settings | options)


def two_groups_of_one(folder: str) -> None:
    """Three members by two processes: group 0 trains members 0 and 2. Then both train one model by DDP."""
    model = train(f"{folder}/members", 3)
    assert (model is None) == (os.environ["RANK"] != "0")
    torch.manual_seed(SEED)
    options: dict[str, Any] = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "recipe": None}
    options |= {"seed": SEED, "progress": False}
    bf.fit(make_model(), *loaders(), epochs=2, folder=f"{folder}/by-both", **options)


def all_cuts_of_four(folder: str) -> None:
    """Four members by four processes; then two by two groups of two, under DDP and under FSDP."""
    before = {key: os.environ[key] for key in WORLD}
    train(f"{folder}/four", 4)
    train(f"{folder}/ddp", 2)
    train(f"{folder}/fsdp", 2, strategy="fsdp", epochs=1)
    assert {key: os.environ[key] for key in WORLD} == before
    assert not dist.is_initialized()


def two_machines(folder: str) -> None:
    """Two machines of two processes: a group on each, and one group over both."""
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    with split_processes(2, "cpu") as group:
        assert (group.index, group.rank, group.num_machines) == (rank // 2, rank % 2, 1)
        assert os.environ["LOCAL_RANK"] == str(rank % 2)
        total = torch.tensor(float(rank))
        dist.all_reduce(total)  # of the group only
        assert total == (1.0 if group.index == 0 else 5.0)
    with split_processes(1, "cpu") as group:
        assert (group.index, group.rank, group.num_machines) == (0, rank, 2)
        assert group.options("cpu") == {"devices": 2, "num_nodes": 2}
        assert (os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]) == (str(rank // 2), str(local))
        torch.manual_seed(0)
        options: dict[str, Any] = {"accelerator": "cpu", "progress": False, "seed": 0}
        bf.fit(make_model(), loaders(5)[0], epochs=1, folder=folder, **options, **group.options("cpu"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[2]](sys.argv[1])
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)
