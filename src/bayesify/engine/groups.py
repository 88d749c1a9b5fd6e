"""The processes of one launch as several groups, each a world of its own."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import distributed as dist

from bayesify.checks import check_whole

TIMEOUT = timedelta(minutes=30)  # of a collective, as in Fabric
_splits = count()  # a second split must not meet the keys of the first in the launcher's store
_stores: list[Any] = []  # kept to the end: the first process may be the one that serves the others


@dataclass(frozen=True)
class Group:
    """This process's group and its place in it."""

    index: int
    num_groups: int
    rank: int  # of this process in its group
    size: int  # processes in the group
    local_ranks: tuple[int, ...]  # of the group's processes on this machine, as the launcher counted them
    num_machines: int  # the group stands on

    @property
    def local_rank(self) -> int:
        """This process among those of its group on this machine."""
        return self.rank % len(self.local_ranks)

    def devices(self, accelerator: str = "auto") -> list[int] | None:
        """The GPUs of the group on this machine: process i keeps GPU i. None where it runs on none."""
        found = torch.accelerator.current_accelerator(check_available=True) if accelerator == "auto" else None
        if accelerator not in ("cuda", "gpu") and (found is None or found.type != "cuda"):
            return None
        visible = max(torch.cuda.device_count(), 1)  # without any, Fabric says so
        devices = [local % visible for local in self.local_ranks]
        if len(set(devices)) < len(devices):
            raise ValueError(
                f"a group of {self.size} processes needs {len(devices)} GPUs on each machine, this process "
                f"sees {visible}: start fewer processes, or more groups"
            )
        return devices

    def options(self, accelerator: str = "auto") -> dict[str, Any]:
        """`devices` and `num_nodes` for `bf.fit` inside this group."""
        devices = self.devices(accelerator)
        named = len(self.local_ranks) if devices is None else f"{','.join(map(str, devices))},"
        return {"devices": named, "num_nodes": self.num_machines}

    def agreed(self, value: bool) -> bool:
        """What the first process of the group says (a shared disk may show them different things)."""
        said = [value]
        if self.size > 1:
            dist.broadcast_object_list(said, src=0)
        return said[0]


@contextmanager
def split_processes(num_groups: int, accelerator: str = "auto") -> Iterator[Group]:
    """Cut the processes that torchrun started into `num_groups` groups of equal size, while entered.

    Inside, every group is a world of its own: RANK, WORLD_SIZE, LOCAL_RANK and their like count within
    it, and torch.distributed is initialised where a group has several processes, so that Fabric finds
    it ready. A group of one process runs without. Neighbouring processes form a group: it stands on one
    machine, or on several whole ones. The members of a group meet in the launcher's store under a name
    of their own, so no group needs a process on the machine at MASTER_ADDR.

    >>> with split_processes(4) as group:
    ...     bf.fit(model, loader, epochs=5, folder=f"chain-{group.index}", **group.options())
    """
    world = World.here()
    group = world.group(num_groups)
    if dist.is_available() and dist.is_initialized():
        raise RuntimeError(
            "torch.distributed is initialised, so the processes are one world already: "
            "split them before anything else joins them"
        )
    devices = group.devices(accelerator)
    device = None if devices is None else torch.device("cuda", devices[group.local_rank])
    if device is not None and world.size > 1:
        torch.cuda.set_device(device)
    name = f"bayesify/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_splits)}/{group.index}"
    store = world.store() if group.size > 1 else None
    before = {key: os.environ.get(key) for key in _variables(group)}
    if world.size > 1:
        os.environ.update(_variables(group))
    try:
        if store is not None:
            dist.init_process_group(
                "gloo" if device is None else "nccl",
                store=dist.PrefixStore(name, store),
                rank=group.rank,
                world_size=group.size,
                timeout=TIMEOUT,
                device_id=device,
            )
        yield group
    finally:
        if store is not None:
            leave_process_group()
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def leave_process_group() -> None:
    """Leave the world that torch.distributed has joined, where it has one."""
    if dist.is_initialized():
        dist.destroy_process_group()
        # gloo's thread still needs the interpreter to let go of the last collective: a process that
        # ends at once aborts there (pytorch issue 190489)
        time.sleep(0.1)


class World(NamedTuple):
    """All processes of the launch, and which of them this is."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    num_machines: int

    @classmethod
    def here(cls) -> "World":
        """As torchrun says; one process where nobody launched it."""

        def read(name: str, default: int) -> int:
            return int(os.environ.get(name, default))

        rank, size = read("RANK", 0), read("WORLD_SIZE", 1)
        local_size = read("LOCAL_WORLD_SIZE", size)
        machines = read("GROUP_WORLD_SIZE", size // local_size)
        return cls(rank, size, read("LOCAL_RANK", rank), local_size, machines)

    def cuts(self) -> list[int]:
        """The numbers of groups that are possible: each group on one machine, or on several whole ones."""
        alike = self.local_size * self.num_machines == self.size
        sizes = [size for size in range(1, self.size + 1) if self.size % size == 0]
        fitting = [
            s for s in sizes if s == 1 or (alike and max(s, self.local_size) % min(s, self.local_size) == 0)
        ]
        return sorted(self.size // size for size in fitting)

    def group(self, num_groups: int) -> Group:
        """The group of this process among `num_groups`."""
        check_whole(num_groups, "num_groups", 1)
        if num_groups not in self.cuts():
            raise ValueError(
                f"num_groups={num_groups!r}: {self.size} processes, {self.local_size} of them on this machine, "
                f"cannot be cut into groups of equal size that stand on one machine or on several whole ones. "
                f"Choose from {', '.join(map(str, self.cuts()))}, or start another number of processes "
                f"(torchrun --nproc-per-node)"
            )
        size = self.size // num_groups
        index, rank = divmod(self.rank, size)
        begin = max(self.local_rank - rank, 0)  # 0 where the group began on a machine before
        local_ranks = tuple(range(begin, begin + min(size, self.local_size)))
        return Group(index, num_groups, rank, size, local_ranks, max(size // self.local_size, 1))

    def store(self) -> Any:
        """The launcher's store, where all its processes can meet."""
        store, _, _ = next(dist.rendezvous("env://", self.rank, self.size, timeout=TIMEOUT))
        _stores.append(store)
        return store


def _variables(group: Group) -> dict[str, str]:
    """The environment of a process of this group, in torchrun's names."""
    here = len(group.local_ranks)
    values = {
        "RANK": group.rank,
        "WORLD_SIZE": group.size,
        "LOCAL_RANK": group.local_rank,
        "LOCAL_WORLD_SIZE": here,
        "GROUP_RANK": group.rank // here,  # torchrun's word for the machine
        "GROUP_WORLD_SIZE": group.num_machines,
        "ROLE_RANK": group.rank,
        "ROLE_WORLD_SIZE": group.size,
    }
    return {key: str(value) for key, value in values.items()}
