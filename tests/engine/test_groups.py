"""The processes of a launch, cut into groups: who goes where, and what cannot be cut."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bayesify.engine import split_processes
from bayesify.engine.groups import Group, World

JOB = Path(__file__).with_name("members_job.py")


def launched(monkeypatch: pytest.MonkeyPatch, rank: int, size: int, per_machine: int) -> None:
    """The environment that torchrun gives to one of `size` processes."""
    values = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank % per_machine,
        "LOCAL_WORLD_SIZE": per_machine,
        "GROUP_RANK": rank // per_machine,
        "GROUP_WORLD_SIZE": size // per_machine,
    }
    for key, value in values.items():
        monkeypatch.setenv(key, str(value))


def test_one_process_is_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(key, raising=False)
    before = dict(os.environ)
    with split_processes(1, "cpu") as group:
        assert (group.index, group.num_groups, group.rank, group.size) == (0, 1, 0, 1)
        assert group.options("cpu") == {"devices": 1, "num_nodes": 1}
        assert dict(os.environ) == before


def test_a_group_of_one_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    launched(monkeypatch, rank=5, size=8, per_machine=4)
    before = dict(os.environ)
    with split_processes(8, "cpu") as group:
        assert (group.index, group.rank, group.size, group.local_ranks) == (5, 0, 1, (1,))
        assert World.here().size == 1
        assert [os.environ[key] for key in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")] == list(
            "0010"
        )
        assert not dist.is_initialized()
    assert dict(os.environ) == before
    with pytest.raises(KeyboardInterrupt), split_processes(8, "cpu"):
        raise KeyboardInterrupt
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("rank", "size", "per_machine", "num_groups", "message"),
    [
        (0, 1, 1, 4, "num_groups=4: 1 processes, .* cannot be cut .* Choose from 1, or"),
        (0, 8, 8, 3, r"8 processes, .* Choose from 1, 2, 4, 8, or .*--nproc-per-node"),
        (0, 12, 4, 2, "12 processes, 4 of them on this machine, cannot be cut .* Choose from 1, 3, 6, 12,"),
        (0, 4, 4, 0, "num_groups=0 must be a whole number of at least 1"),
        (0, 4, 4, True, "num_groups=True must be"),
    ],
)
def test_what_cannot_be_cut(
    rank: int,
    size: int,
    per_machine: int,
    num_groups: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched(monkeypatch, rank, size, per_machine)
    with pytest.raises(ValueError, match=message), split_processes(num_groups, "cpu"):
        pass


def test_where_the_groups_stand() -> None:
    """Two machines of four processes: (index, rank in it, local ranks, machines) of process 6."""

    def place(num_groups: int) -> tuple[Any, ...]:
        group = World(rank=6, size=8, local_rank=2, local_size=4, num_machines=2).group(num_groups)
        return group.index, group.rank, group.local_ranks, group.num_machines

    assert place(8) == (6, 0, (2,), 1)
    assert place(4) == (3, 0, (2, 3), 1)
    assert place(2) == (1, 2, (0, 1, 2, 3), 1)
    assert place(1) == (0, 6, (0, 1, 2, 3), 2)


def test_machines_that_differ_take_groups_of_one() -> None:
    world = World(rank=3, size=6, local_rank=1, local_size=4, num_machines=2)
    assert world.cuts() == [6]
    assert world.group(6).local_ranks == (1,)


def test_every_process_keeps_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    alone = Group(3, 4, 0, 1, (3,), 1)
    assert alone.options() == alone.options("cuda") == {"devices": "3,", "num_nodes": 1}
    assert alone.options("cpu") == {"devices": 1, "num_nodes": 1}
    pair = Group(1, 2, 1, 2, (2, 3), 1)
    assert pair.options("gpu") == {"devices": "2,3,", "num_nodes": 1}
    assert (pair.devices() or [])[pair.local_rank] == 3
    over_two = Group(0, 1, 5, 8, (0, 1, 2, 3), 2)
    assert over_two.options() == {"devices": "0,1,2,3,", "num_nodes": 2}
    assert over_two.local_rank == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert alone.options()["devices"] == "0,"  # members may share one
    with pytest.raises(ValueError, match="a group of 2 processes needs 2 GPUs .* sees 1"):
        pair.options()


def test_fabric_takes_the_devices_that_are_named() -> None:
    """The texts that `Group.options` makes, as Fabric reads them."""
    from lightning_fabric.utilities.device_parser import _normalize_parse_gpu_string_input as read

    assert read("3,") == [3]
    assert read("2,3,") == [2, 3]


def test_processes_that_are_joined_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="split them before anything else joins them"):
            split_processes(1, "cpu").__enter__()
    finally:
        dist.destroy_process_group()


def test_two_machines(tmp_path: Path) -> None:
    """Two launchers stand for two machines; the second group has no process on the first."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += ["--rdzv-backend=c10d", "--rdzv-id=machines", f"--rdzv-endpoint=localhost:{port}"]
    machines = [
        subprocess.Popen(
            [*command, str(JOB), str(tmp_path / "run"), "two_machines"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [machine.communicate(timeout=120)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], "\n".join(o[-3000:] for o in outputs)
    assert (tmp_path / "run" / "model.safetensors").exists()
