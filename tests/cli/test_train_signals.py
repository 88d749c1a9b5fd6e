"""A run that is told to stop leaves a checkpoint and goes on bit for bit, whatever stopped it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cli_runs import read, start, weights

FLAGS = (
    *("--method", "mc_vi", "--net", "mlp", "--data", "digits", "--set", "net.hidden=32", "--epochs", "40"),
    *("--schedule", "cosine", "--ema", "0.99", "--kl-warmup", "2", "--val-draws", "2", "--batch-size", "64"),
)


def stop_after(process: subprocess.Popen[str], num_epochs: int, number: int) -> str:
    """Send the signal after some finished epochs; what the process says from then on."""
    assert process.stderr is not None
    seen = 0
    while seen < num_epochs:
        line = process.stderr.readline()
        assert line, "the run ended before it could be stopped"
        seen += line.startswith("epoch ")
    process.send_signal(number)
    _, rest = process.communicate(timeout=120)
    return rest


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_stopped_twice_equals_never_stopped(tmp_path: Path) -> None:
    run, reference = tmp_path / "run", tmp_path / "reference"
    going_on = ("train", "--resume", "--folder", run)

    process = start("train", *FLAGS, "--folder", run)
    rest = stop_after(process, 3, signal.SIGINT)
    assert process.returncode == 130, rest
    assert "stopped at epoch" in rest
    assert f"go on with: bayesify train --resume --folder {run}" in rest
    assert "Traceback" not in rest
    assert list((run / "checkpoints").glob("step-*.safetensors"))
    assert not (run / "model.safetensors").exists()

    process = start(*going_on)
    rest = stop_after(process, 3, signal.SIGTERM)
    assert process.returncode == 143, rest
    assert "Traceback" not in rest

    whole = start("train", *FLAGS, "--folder", reference)
    for process in (start(*going_on), whole):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    first, second = weights(run), weights(reference)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert read(run, "summary.json")["test"] == read(reference, "summary.json")["test"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_sigterm_before_training_begins(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from bayesify.cli import main, training;"
        "training.prepare = lambda settings: os.kill(os.getpid(), signal.SIGTERM);"
        "sys.argv = ['bayesify', 'train', '--net', 'mlp', '--data', 'digits', '--method', 'point'];"
        "main()"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 143, result.stderr
    assert "Traceback" not in result.stderr
