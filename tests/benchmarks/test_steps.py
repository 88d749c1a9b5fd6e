"""The benchmarks of steps and predictions run; what needs CUDA graphs says so."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bayesify as bf
from bayesify.nets import make

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = ["--device", "cpu", "--net", "lenet", "--channels", "1", "--size", "28", "--batch", "2"]


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(bf.__file__).parents[1])}
    command = [sys.executable, str(BENCHMARKS / script), *SMALL, *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("script", ["steps.py", "patching.py"])
def test_predictions_are_timed_in_the_modes_asked_for(script: str) -> None:
    result = run(script, "--modes", "eager", "--only", "prediction")
    assert result.returncode == 0, result.stderr
    assert "eager" in result.stdout
    assert "compiled" not in result.stdout


def test_captured_needs_cuda_graphs() -> None:
    result = run("steps.py", "--modes", "captured", "--only", "prediction")
    assert result.returncode == 1
    assert "--modes captured makes CUDA graphs, which --device cpu does not have" in result.stderr


@pytest.mark.parametrize("batched", [None, True, False])
def test_what_is_captured_is_a_prediction_of_20_draws(
    batched: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import steps

    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, dynamic: compile_(f, backend="eager", dynamic=dynamic, fullgraph=True)
    )
    net = make("lenet", num_outputs=10, input_shape=(1, 28, 28))
    model = bf.bayesify(net, bf.MonteCarloVI())
    a = argparse.Namespace(device="cpu", precision="32")
    found = steps.whole_prediction(a, model, torch.randn(2, 1, 28, 28), batched)()
    assert found.num_draws == 20
    torch.testing.assert_close(found.mean.sum(1), torch.ones(2))
