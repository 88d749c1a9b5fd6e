"""Two processes of a DDP group are one chain, the one of a single process on the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bayesify

JOB = Path(__file__).with_name("ddp_job.py")


def test_two_processes_are_one_chain(tmp_path: Path) -> None:
    source = str(Path(bayesify.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    jobs = [(0, 1), (0, 2), (1, 2)]
    running = [
        subprocess.Popen(
            [sys.executable, str(JOB), str(rank), str(world), str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, world in jobs
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    alone, first, second = (torch.load(tmp_path / f"{world}-{rank}.pt") for rank, world in jobs)
    for key, value in first.items():
        assert torch.equal(value, second[key])
        assert value.tolist() == [pytest.approx(row, rel=1e-4, abs=1e-6) for row in alone[key].tolist()]
