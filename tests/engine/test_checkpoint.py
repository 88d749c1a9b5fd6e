"""A run killed at any instant goes on bit for bit.

On a machine with a GPU: `pytest tests/engine/test_checkpoint.py -k cuda -s` (and -k gpu for a compiled run).
"""

import csv
import json
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

from bayesify import atomic as files
from bayesify.engine.checkpoint import find_checkpoints, sound_checkpoints

JOB = Path(__file__).with_name("training_job.py")
TIMING = {"seconds", "examples_per_second"}


def start(folder: Path, method: str, kind: str, pause: float = 0.02) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(JOB), str(folder), method, kind, str(pause), "cpu"])


def wait_for_a_checkpoint(
    folder: Path, process: subprocess.Popen[bytes], above: int, patience: float = 60
) -> None:
    deadline = time.monotonic() + patience
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


def killed_once(folder: Path, *job: str, patience: float = 60) -> list[dict[str, Any]]:
    """A run killed after some steps and resumed, and one that was not, all in processes of their own.

    The two must be equal. Returns what each said at its end: `job` is METHOD LOADER PAUSE ACCELERATOR [compiled].
    """
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, str(JOB)]
    process = subprocess.Popen([*command, str(folder / "killed"), *job], env=environment)
    try:
        wait_for_a_checkpoint(folder / "killed", process, above=20, patience=patience)
    finally:
        process.kill()
        process.wait()
    assert 20 < find_checkpoints(folder / "killed" / "checkpoints")[0][0] < 78
    method, kind, _, *where = job
    said = []
    for name in ("killed", "whole"):
        done = subprocess.run(
            [*command, str(folder / name), method, kind, "0", *where], env=environment, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        said.append(json.loads(done.stdout.splitlines()[-1]))
    assert_same_run(folder / "killed", folder / "whole")
    assert [any("resumed at" in note for note in each["notes"]) for each in said] == [True, False]
    return said


def assert_on_cuda(folder: Path, said: list[dict[str, Any]]) -> None:
    """Every parameter and buffer lived on the GPU, and its generator is in the checkpoints."""
    print(f"on {torch.cuda.get_device_name()}: {said}")
    assert [each["devices"] for each in said] == [["cuda:0"]] * 2
    _, newest = next(sound_checkpoints(folder / "killed" / "checkpoints"))
    assert "cuda.0" in newest["random"][0][0]


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@needs_a_gpu
@pytest.mark.parametrize(("method", "kind"), [("mc_vi", "own"), ("sgld", "torch")])
def test_cuda_run_killed_and_resumed(method: str, kind: str, tmp_path: Path) -> None:
    """Under deterministic algorithms, which a bit-exact run on a GPU needs anyway."""
    assert_on_cuda(tmp_path, killed_once(tmp_path, method, kind, "0.1", "cuda"))


@needs_a_gpu
@pytest.mark.inductor
def test_compiled_gpu_run_killed_and_resumed(tmp_path: Path) -> None:
    """The same with CUDA graphs: they are recorded at another step after the resume."""
    said = killed_once(tmp_path, "mc_vi", "own", "0.1", "cuda", "compiled", patience=200)
    assert_on_cuda(tmp_path, said)
    assert all("compile: on, as asked" in each["notes"] for each in said)


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
