"""`bayesify train`: the folder it leaves, how it is refused, repeated and continued."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runs import DIABETES, DIGITS, fail, read, succeed, weights
from safetensors.torch import load_file

from bayesify.cli.run import Run
from bayesify.data import load

FACTORY = """
from torch import nn

def small(num_outputs, input_shape, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[-1] ** 2, width), nn.Linear(width, num_outputs))

def broken(num_outputs):
    return nn.Linear(3, num_outputs)

def number():
    return 3
"""


def test_the_folder_of_a_run(digits: Path) -> None:
    names = {path.name for path in digits.iterdir() if not path.name.startswith(".")}
    files = {"config.json", "summary.json", "metrics.csv", "model.safetensors", "best.safetensors"}
    assert names == {*files, "checkpoints"}
    assert list((digits / "checkpoints").glob("step-*.safetensors"))
    assert not list(digits.rglob("*.partial"))
    with (digits / "metrics.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]


def test_the_configuration_holds_every_option(digits: Path) -> None:
    config = read(digits)
    assert config["train"]["seed"] == 0
    chosen = {name: config["train"][name] for name in ("recipe", "optimizer", "lr", "schedule")}
    assert chosen == {"recipe": "plain", "optimizer": "adam", "lr": 3e-3, "schedule": "onecycle"}
    assert config["method"]["prior"] == {"name": "normal", "mean": 0.0, "std": 1.0}
    assert config["method"]["where"] == "~norm"
    assert config["net"]["hidden"] == [16]
    assert config["net"]["activation"] == "relu"
    assert config["task"]["class_names"] == list("0123456789")
    assert config["task"]["normalisation"]["mean"] == load("digits").normalisation.mean.tolist()
    assert set(config["versions"]) == {"bayesify", "torch", "numpy", "python"}
    assert config["device"]


def test_the_summary(digits: Path) -> None:
    summary = read(digits, "summary.json")
    assert summary["parameters"] == {"network": 1210, "random": 1210, "total": 2420}
    assert summary["epochs"] == 2
    assert summary["seconds"] > 0
    assert summary["test"]["num_data"] == 359
    assert 0 < summary["test"]["accuracy"] < 1
    assert any("compile" in text for text in summary["notes"])


def test_regression_metrics_are_in_original_units(diabetes: Path) -> None:
    test, ds = read(diabetes, "summary.json")["test"], load("diabetes")
    spread = float(ds.test.targets.std())
    assert 30 < test["rmse"] < spread  # the targets lie between 25 and 346
    assert 30 < test["std"] < 2 * spread
    assert 4 < test["nll"] < 7  # log(50) + 0.5 log(2πe) = 5.3
    assert read(diabetes)["likelihood"] == {"name": "normal", "std": None, "learn_std": None}


def test_a_config_repeats_a_run_exactly(digits: Path, tmp_path: Path) -> None:
    result = succeed("train", "--config", digits / "config.json", "--folder", tmp_path / "again")
    assert "accuracy" in result.stdout
    assert "training in" in result.stderr
    first, second = weights(digits), weights(tmp_path / "again")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert read(digits)["method"] == read(tmp_path / "again")["method"]


def test_a_config_file_with_flags_over_it(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[train]\nepochs = 7\nlr = 0.5\nschedule = "cosine"\nval_fraction = 0\n[method]\nname = "mc_vi"\n'
        'init_std = 0.1\n[net]\nname = "mlp"\nhidden = [4]\n[data]\nname = "two_moons"\nnum_train = 40\n'
    )
    succeed(
        *("train", "--config", file, "--folder", tmp_path / "run", "--epochs", "1", "--lr", "0.01"),
        *("--set", "method.init_std=0.2", "--set", "method.prior.std=0.5", "--set", "data.num_train=30"),
        *("--accumulate", "2", "--batch-size", "8", "--ema", "0.9", "--clip-norm", "1", "--kl-warmup", "0.5"),
        *("--num-draws", "2", "--no-compile"),
    )
    config = read(tmp_path / "run")
    assert (config["train"]["epochs"], config["train"]["lr"], config["train"]["schedule"]) == (
        1,
        0.01,
        "cosine",
    )
    assert config["method"]["init_std"] == 0.2
    assert config["method"]["prior"]["std"] == 0.5
    assert config["task"]["num_train"] == 30
    assert config["train"]["compile"] is False
    assert config["task"]["num_val"] == 0
    assert not (tmp_path / "run/best.safetensors").exists()


def test_another_method_drops_the_options_of_the_file(tmp_path: Path, digits: Path) -> None:
    config = ("--config", digits / "config.json")
    succeed("train", *config, "--method", "point", "--epochs", "1", "--folder", tmp_path)
    assert read(tmp_path)["method"]["name"] == "point"
    assert read(tmp_path, "summary.json")["parameters"]["total"] == 1210


def test_a_folder_with_a_run_is_refused(digits: Path) -> None:
    before = (digits / "config.json").read_bytes()
    assert "holds a run already: go on with --resume" in fail("train", *DIGITS, "--folder", digits)
    assert (digits / "config.json").read_bytes() == before


def test_a_foreign_config_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert "holds a run already" in fail("train", *DIGITS, "--folder", tmp_path)
    assert "was not written by `bayesify train`" in fail("train", "--resume", "--folder", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "vit"}


def test_resuming_with_more_epochs_equals_one_long_run(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    succeed("train", *DIABETES, "--epochs", "2", "--folder", short)
    result = succeed("train", "--resume", "--epochs", "4", "--folder", short)
    assert "resumed at epoch 3" in result.stderr
    succeed("train", *DIABETES, "--epochs", "4", "--folder", long)
    first, second = weights(short), weights(long)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert read(short)["train"]["epochs"] == 4
    assert read(short, "summary.json")["test"] == read(long, "summary.json")["test"]
    assert (
        "ends" not in succeed("train", "--resume", "--folder", short).stderr
    )  # a finished run stays as it is
    assert all(torch.equal(first[name], value) for name, value in weights(short).items())


def test_flags_that_contradict_the_run(digits: Path) -> None:
    resume = ("train", "--resume", "--folder", digits)
    message = fail(*resume, "--lr", "0.5", "--net", "lenet", "--set", "method.init_std=0.3")
    assert "train.lr is 0.5 here and 0.003 in the run" in message
    assert "net.name is 'lenet' here and 'mlp' in the run" in message
    assert "method.init_std is 0.3 here and 0.05 in the run" in message
    assert "can only grow" in fail(*resume, "--epochs", "1")
    succeed(*resume, *DIGITS)  # the same flags again are no contradiction


def test_the_schedule_of_the_recipe_grows(tmp_path: Path) -> None:
    """By default, and with its settings as config.json has them."""
    result = succeed("train", *DIGITS, "--folder", tmp_path)
    assert (
        "recipe plain (neither attention nor convolutions with norm layers): adam, lr 0.003, onecycle over 2 epochs"
        in result.stderr.replace("\n", " ")
    )
    before = read(tmp_path)["train"]
    result = succeed("train", "--resume", "--folder", tmp_path, "--epochs", "3")
    assert "the schedule was laid out for 22 steps and is now for 33" in result.stderr
    assert read(tmp_path)["train"] == {**before, "epochs": 3}
    assert read(tmp_path, "summary.json")["epochs"] == 3


def test_a_run_from_before_there_were_recipes_goes_on_without(tmp_path: Path) -> None:
    succeed("train", *DIGITS, "--recipe", "none", "--folder", tmp_path)
    config = read(tmp_path)
    assert (config["train"]["recipe"], config["train"]["lr"]) == ("none", 1e-3)
    for name in ("recipe", "optimizer", "momentum", "weight_decay", "frozen_norm"):
        del config["train"][name]
    config["train"]["kl_warmup"] = 0.0
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = succeed("train", "--resume", "--folder", tmp_path, "--epochs", "3")
    assert "resumed at epoch 3" in result.stderr and "asked for" not in result.stderr
    train = read(tmp_path)["train"]
    assert (train["recipe"], train["optimizer"], train["schedule"]) == ("none", None, None)


def test_the_optimiser_by_flags(tmp_path: Path) -> None:
    given = ("--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.8", "--weight-decay", "1e-4")
    succeed("train", *DIGITS, *given, "--label-smoothing", "0.1", "--folder", tmp_path)
    config = read(tmp_path)
    names = ("recipe", "optimizer", "lr", "momentum", "weight_decay", "schedule")
    assert [config["train"][name] for name in names] == ["plain", "sgd", 0.1, 0.8, 1e-4, "onecycle"]
    assert config["likelihood"]["label_smoothing"] == 0.1
    assert "label_smoothing" in fail("train", *DIABETES, "--label-smoothing", "0.1", "--dry-run")


def test_resume_without_a_run_begins_one(tmp_path: Path) -> None:
    fresh = ("--resume", "--folder", tmp_path / "new")
    assert "--method is missing" in fail("train", *fresh)
    succeed("train", *DIGITS, *fresh)
    assert (tmp_path / "new/summary.json").exists()
    assert "--folder is missing: which run shall go on?" in fail("train", "--resume")


def test_a_resumed_run_says_when_versions_differ(digits: Path, tmp_path: Path) -> None:
    config = read(digits)
    config["versions"]["torch"] = "1.0"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "the run began with torch 1.0" in succeed("train", "--resume", "--folder", tmp_path).stderr


def test_the_default_folder_is_named_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    succeed("train", *DIGITS, "--seed", "3", "--epochs", "1")
    assert (tmp_path / "runs/digits-mlp-mc_vi-seed3/summary.json").exists()


def test_a_network_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "cli_my_nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    own = ("train", *DIGITS[:2], "--data", "digits", "--epochs", "1")
    succeed(*own, "--net", "cli_my_nets:small", "--set", "net.width=3", "--folder", "own")
    assert read(tmp_path / "own")["net"] == {"name": "cli_my_nets:small", "width": 3}
    monkeypatch.chdir("/")
    succeed("evaluate", tmp_path / "own", "--trust")
    message = fail(*own, "--net", "cli_my_nets:broken", "--folder", tmp_path / "b")
    assert "net='cli_my_nets:broken' does not fit data='digits' (inputs 1×8×8)" in message
    assert "it must return a torch.nn.Module" in fail(*own, "--net", "cli_my_nets:number")
    assert "importing module 'no_such' failed" in fail(*own, "--net", "no_such:net")
    assert not (tmp_path / "b").exists()


def test_two_heads_and_one_logit(tmp_path: Path) -> None:
    one = ("--epochs", "1")
    succeed("train", *DIABETES, *one, "--likelihood", "heteroscedastic", "--folder", tmp_path / "two")
    assert read(tmp_path / "two")["task"]["num_outputs"] == 2
    moons = ("--method", "point", "--net", "mlp", "--data", "two_moons", *one, "--likelihood", "bernoulli")
    succeed("train", *moons, "--folder", tmp_path / "logit")
    assert load_file(tmp_path / "logit/model.safetensors")["net.5.weight"].shape == (1, 100)
    assert "accuracy" in read(tmp_path / "logit", "summary.json")["test"]
    assert "is for two classes" in fail("train", *DIGITS, "--likelihood", "bernoulli")


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = " ".join(succeed("train", *DIGITS, "--dry-run").stdout.split())
    assert "1,294 train, 144 validation, 359 test examples" in text
    assert "1,210 in the network, 1,210 of them random" in text
    assert "11 per epoch, 22 in 2 epochs of batch size 128" in text
    assert "about 38.7 kB (9.7 kB parameters, 9.7 kB gradients, 19.4 kB optimiser state)" in text
    assert "estimate" in text
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_goes_by_the_batch_of_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's rate for 2 × 32 examples, and as many epochs as make 2,000 of their steps."""

    def said(*arguments: str) -> str:
        small = ("--method", "point", "--batch-size", "32", "--accelerator", "cpu", "--dry-run")
        result = succeed("train", "--net", "mlp", "--data", "digits", *small, *arguments)
        return " ".join(result.stdout.replace("│", "").split())

    assert "adam, lr 0.0015, onecycle over 49 epochs" in said()
    for devices in ("2", "0,1"):
        two = said("--devices", devices)
        assert "21 per epoch, 2,016 in 96 epochs of batch size 32 × 2 processes" in two
        assert "adam, lr 0.00212, onecycle over 96 epochs" in two
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "adam, lr 0.003, onecycle" in said()
    apart = said("--method", "deep_ensemble", "--set", "method.num_members=2", "--members-in-parallel")
    assert "32 × 2 processes" in apart and "adam, lr 0.00212" in apart


def test_data_that_moved(tmp_path: Path) -> None:
    old, new, run = tmp_path / "old/uci", tmp_path / "new/uci", tmp_path / "run"
    old.mkdir(parents=True)
    rows = np.arange(40)
    x = np.random.RandomState(0).standard_normal((40, 6))
    parts = {"train": rows[None, :30], "test": rows[None, 30:]}
    np.savez(old / "yacht.npz", X=x, y=x[:, :1] * 10 + 50, **parts)
    flags = ("--data", "uci_yacht", "--data-root", old.parent)
    succeed("train", *DIABETES, *flags, "--epochs", "1", "--folder", run)
    assert read(run)["data"] == {"name": "uci_yacht", "root": str(old.parent), "split": 0, "target": 0}
    new.parent.mkdir()
    old.rename(new)
    old.parent.rmdir()
    assert "is not there" in fail("train", "--resume", "--epochs", "2", "--folder", run)
    succeed("evaluate", run, BAYESIFY_DATA=str(new.parent))
    succeed("train", "--resume", "--epochs", "2", "--folder", run, "--data-root", new.parent)
    assert read(run)["data"]["root"] == str(new.parent)
    succeed("evaluate", run)


def test_a_calibrated_run(tmp_path: Path) -> None:
    flags = (*DIGITS, "--epochs", "2", "--calibrate")
    succeed("train", *flags, "--folder", tmp_path / "run")
    assert read(tmp_path / "run", "config.json")["train"]["calibrate"] is True
    assert Run.at(tmp_path / "run").model().calibration is not None
    succeed("train", *DIGITS, "--epochs", "2", "--folder", tmp_path / "plain")
    found, plain = (read(tmp_path / name, "summary.json")["test"] for name in ("run", "plain"))
    assert found["accuracy"] == plain["accuracy"] and found["nll"] != plain["nll"]
    missing = fail("train", *flags, "--val-fraction", "0", "--folder", tmp_path / "none")
    assert "--calibrate needs a validation part: give --val-fraction" in missing
