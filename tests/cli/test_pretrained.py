"""Networks of one's own that are trained already, on the command line."""

import sys
from pathlib import Path

import pytest
import torch
from cli_runs import fail, read, succeed

import bayesify as bf

MINE = """
import torch
from torch import nn

def trained(num_outputs, input_shape):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, num_outputs))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.25)
    return net
"""
RUN = ("--method", "mc_vi", "--data", "digits", "--net", "trained_net:trained", "--start", "pretrained")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network of one's own; `sys.path` and the modules are put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "trained_net", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("trained_net.py").write_text(MINE)
    return tmp_path


def test_a_run_begins_from_the_weights_and_goes_on(here: Path) -> None:
    told = succeed("train", *RUN, "--epochs", 1, "--folder", "run").output
    assert "trained already" in " ".join(told.split())
    config = read(here / "run")
    assert config["train"]["start"] == "pretrained"
    assert config["method"]["prior"] == {"name": "normal", "mean": "net", "std": 1.0}
    succeed("train", "--resume", "--folder", "run", "--epochs", 2, "--net", "trained_net:trained")
    fresh = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10)
    )
    model = bf.load(here / "run" / "model.safetensors", fresh)
    assert model.start == "pretrained"
    for name in model.posterior.slots:
        first = model.posterior.prior_means.places[name].get()
        assert torch.equal(first, torch.full_like(first, 0.25))
    assert "nll" in succeed("evaluate", "run", "--net", "trained_net:trained", "--num-draws", 2).output


def test_a_network_of_ours_has_no_weights_to_begin_from() -> None:
    message = fail("train", "--method", "mc_vi", "--data", "digits", "--net", "mlp", "--start", "pretrained")
    assert "--net mlp begins with random weights" in message and "--net package.module:factory" in message
    assert "scratch" in fail("train", *RUN[:-1], "fresh")


def test_a_prior_by_tensors_is_nothing_that_a_flag_can_say() -> None:
    """Numbers and words are; an empirical width is one."""
    for value in ('{"tensor": "8x64:abc"}', "[1, 2]"):
        run = ("--method", "mc_vi", "--data", "digits", "--net", "mlp", "--set", f"method.prior.mean={value}")
        message = fail("train", *run)
        assert "must be a number" in message, message
