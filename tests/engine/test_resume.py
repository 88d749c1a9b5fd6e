"""A run killed at any instant goes on bit for bit."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training_job import train

from bayesify import files
from bayesify.engine.checkpoint import find_checkpoints

JOB = Path(__file__).with_name("training_job.py")
TIMING = {"seconds", "examples_per_second"}


def start(folder: Path, method: str, kind: str, pause: float = 0.02) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(JOB), str(folder), method, kind, str(pause)])


def wait_for_a_checkpoint(folder: Path, process: subprocess.Popen[bytes], above: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = find_checkpoints(folder / "checkpoints")
        if found and found[0][0] > above:
            return
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint beyond step {above} (exit code {process.poll()})")


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return files.read_tensors(path, files.read_header(path))


def assert_same_run(a: Path, b: Path) -> None:
    for name in ("model.safetensors", "best.safetensors"):
        mine, other = tensors(a / name), tensors(b / name)
        assert set(mine) == set(other)
        assert all(torch.equal(mine[k], other[k]) for k in mine), name
    rows = [[{k: v for k, v in r.items() if k not in TIMING} for r in _rows(f)] for f in (a, b)]
    assert rows[0] == rows[1]


def _rows(folder: Path) -> list[dict[str, Any]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("method", "kind"), [("mc_vi", "own"), ("sgld", "torch")])
def test_kill_nine_at_three_random_instants(method: str, kind: str, tmp_path: Path) -> None:
    rng = random.Random(f"{method} {kind}")
    step = 0
    for _ in range(3):
        process = start(tmp_path / "killed", method, kind)
        wait_for_a_checkpoint(tmp_path / "killed", process, above=step)
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        step = find_checkpoints(tmp_path / "killed" / "checkpoints")[0][0]
    assert 0 < step < 78
    train(str(tmp_path / "killed"), method, kind)
    train(str(tmp_path / "whole"), method, kind)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_polite_signal_writes_a_checkpoint_at_once(number: int, code: int, tmp_path: Path) -> None:
    process = start(tmp_path, "mc_vi", "own", pause=0.05)
    wait_for_a_checkpoint(tmp_path, process, above=0)
    time.sleep(0.06)
    process.send_signal(number)
    process.wait(timeout=30)
    assert process.returncode in (code, -number, 130)
    steps = [step for step, _ in find_checkpoints(tmp_path / "checkpoints")]
    history = train(str(tmp_path), "mc_vi", "own")
    assert any(f"resumed at epoch {steps[0] // 13 + 1}, step {steps[0]}" in note for note in history.notes)


def test_the_same_run_twice_gives_the_same_numbers_and_another_seed_others(tmp_path: Path) -> None:
    first = train(str(tmp_path / "a"), "mc_vi", "torch", epochs=2)
    second = train(str(tmp_path / "b"), "mc_vi", "torch", epochs=2)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert first.column("val_nll") == second.column("val_nll")
    other = train(str(tmp_path / "c"), "mc_vi", "torch", epochs=2, seed=12)
    assert not set(other.column("loss")) & set(first.column("loss"))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path: Path) -> None:
    train(str(tmp_path / "whole"), "mc_vi", "own", epochs=4)
    train(str(tmp_path / "broken"), "mc_vi", "own", epochs=4)
    (step, newest), (before, _) = find_checkpoints(tmp_path / "broken" / "checkpoints")[:2]
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=f"step-{step:09d}.safetensors is damaged"):
        history = train(str(tmp_path / "broken"), "mc_vi", "own", epochs=4)
    assert any(f"step {before}" in note for note in history.notes)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    train(str(tmp_path), "mc_vi", "own", epochs=2)
    before = tensors(tmp_path / "model.safetensors")
    history = train(str(tmp_path), "mc_vi", "own", epochs=2)
    assert len(history) == 2
    after = tensors(tmp_path / "model.safetensors")
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    train(str(tmp_path), "mc_vi", "own", epochs=2, keep_last=3)
    assert len(find_checkpoints(tmp_path / "checkpoints")) == 3
    assert not [name for name in os.listdir(tmp_path / "checkpoints") if name.endswith(".partial")]
