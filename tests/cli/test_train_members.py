"""`bayesify train --members-in-parallel`: the members of a deep ensemble, each by a share of the processes."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from cli_runs import fail, read, succeed, weights

import bayesify

MEMBERS = (
    *("--method", "deep_ensemble", "--set", "method.num_members=2", "--net", "mlp", "--set", "net.hidden=8"),
    *("--epochs", "1", "--members-in-parallel"),
)
DIGITS = ("train", *MEMBERS, "--data", "digits")


def same(a: Path, b: Path) -> bool:
    mine, other = weights(a), weights(b)
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert "accuracy" in succeed(*DIGITS, "--folder", one).stdout
    assert "2 members trained apart and merged" in read(one, "summary.json")["notes"]
    source = str(Path(bayesify.__file__).parents[1])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*launcher, "-m", "bayesify.cli", *DIGITS, "--folder", str(two)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Test after 1 epoch: deep_ensemble on digits") == 1
    assert same(one, two)
    assert all(same(one / f"member-{i}", two / f"member-{i}") for i in range(2))
    assert read(one, "summary.json")["test"] == read(two, "summary.json")["test"]
    names = {path.name for path in two.iterdir() if not path.name.startswith(".")}
    files = {"config.json", "summary.json", "metrics.csv", "model.safetensors", "best.safetensors"}
    assert names == {*files, "member-0", "member-1"}


def test_a_run_of_members_is_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = succeed(*DIGITS, "--set", "method.method=mc_vi", "--folder", run, "--dry-run").stdout
    assert "trained apart, each by its share of the processes" in first
    succeed(*DIGITS, "--set", "method.method=mc_vi", "--recipe", "none", "--folder", run)
    assert "holds a run already" in fail(*DIGITS, "--folder", run)
    succeed("evaluate", run)
    text = succeed("show", run).stdout
    assert "members_in_parallel=True" in " ".join(text.split())
    succeed("train", "--resume", "--epochs", "2", "--folder", run)
    assert read(run, "summary.json")["epochs"] == 2
    assert read(run)["train"]["members_in_parallel"] is True
    other = tmp_path / "other"
    succeed(*DIGITS, "--set", "method.method=mc_vi", "--recipe", "none", "--epochs", "2", "--folder", other)
    assert same(run, other)


def test_regression_with_a_learned_noise_level(tmp_path: Path) -> None:
    succeed("train", *MEMBERS, "--data", "diabetes", "--folder", tmp_path)
    assert read(tmp_path, "summary.json")["test"]["std"] > 0


def test_an_unfinished_run_shows_a_member(tmp_path: Path) -> None:
    succeed(*DIGITS, "--folder", tmp_path)
    for name in ("metrics.csv", "summary.json", "model.safetensors"):
        (tmp_path / name).unlink()
    text = succeed("show", tmp_path).stdout
    assert "val_accuracy" in text
    assert "Not finished; go on with" in text
    succeed("train", "--resume", "--folder", tmp_path)
    assert (tmp_path / "summary.json").exists()


def test_what_is_refused(tmp_path: Path, digits: Path) -> None:
    folder = ("--folder", tmp_path / "never")
    message = fail(*DIGITS, "--method", "mc_vi", *folder)
    assert "option='num_members' does not exist" in message
    plain = ("train", "--method", "mc_vi", "--net", "mlp", "--data", "digits", "--members-in-parallel")
    assert "--members-in-parallel needs --method deep_ensemble, not mc_vi" in fail(*plain, *folder)
    message = fail(*DIGITS, "--devices", "2", *folder)
    assert "takes the processes that torchrun started: leave out --devices 2" in message
    message = fail("train", "--resume", "--members-in-parallel", "--folder", digits)
    assert "train.members_in_parallel is True here and False in the run" in message
    assert not (tmp_path / "never").exists()
