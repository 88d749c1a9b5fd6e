"""`bayesify train --record`: what is written while training, and what the report makes of it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fail, read, succeed, weights

from bayesify.cli.recording import recorded

# runs of a few epochs end on the way to the posterior, and say so
pytestmark = pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
SMALL = ("--net", "mlp", "--data", "digits", "--set", "net.hidden=16", "--batch-size", "64", "--record")
ATMC = (*SMALL, "--method", "atmc", "--lr", "0.01")
VARIANCE = (*SMALL, "--method", "variance", "--lr", "0.01")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record") / "chain"
    succeed("train", *ATMC, "--epochs", "6", "--folder", folder)
    return folder


@pytest.fixture(scope="module")
def variance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record") / "variance"
    succeed("train", *VARIANCE, "--epochs", "3", "--folder", folder)
    return folder


def test_a_sampler(chain: Path) -> None:
    """A look every ten steps, of the sampler and of the loss that the history has too."""
    rows = read(chain, "sampler.json")
    steps = 6 * -(-read(chain)["task"]["num_train"] // 64)
    assert [row["step"] for row in rows] == list(range(10, steps + 1, 10))
    assert set(rows[0]) == {"step", "kinetic", "thermostat", "predicted", "loss"}
    outcome = recorded(chain)["sampler"]
    settled = rows[len(rows) // 4 :]
    kinetic = np.mean([row["kinetic"] for row in settled])
    assert outcome.metrics["kinetic_temperature"] == pytest.approx(kinetic)
    loss = np.array([row["loss"] for row in settled])
    centred = loss - loss.mean()
    assert outcome.arrays["autocorrelation"][1] == pytest.approx(
        (centred[1:] @ centred[:-1]) / (centred @ centred)
    )
    assert outcome.arrays["lag"][:2].tolist() == [0, 10]


def test_recording_changes_nothing(chain: Path, tmp_path: Path) -> None:
    plain = [argument for argument in ATMC if argument != "--record"]
    succeed("train", *plain, "--epochs", "6", "--folder", tmp_path / "plain")
    mine, theirs = weights(chain), weights(tmp_path / "plain")
    assert mine.keys() == theirs.keys()
    assert all((mine[key] == theirs[key]).all() for key in mine)


def test_a_run_that_goes_on_records_on(chain: Path, tmp_path: Path) -> None:
    copy = tmp_path / "chain"
    succeed("train", *ATMC, "--epochs", "3", "--folder", copy)
    first = read(copy, "sampler.json")
    succeed("train", "--resume", "--epochs", "6", "--folder", copy)
    rows = read(copy, "sampler.json")
    assert rows[: len(first)] == first
    assert [row["step"] for row in rows] == [row["step"] for row in read(chain, "sampler.json")]


def test_a_variance_network(variance: Path) -> None:
    rows = read(variance, "phase.json")
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    outcome = recorded(variance)["phase"]
    assert outcome.arrays["ensemble"].tolist() == [row["ensemble"] for row in rows]
    mean = np.mean(list(rows[-1]["log_alpha"].values()))
    assert outcome.arrays["log_alpha"][-1] == pytest.approx(mean)
    with (variance / "metrics.csv").open() as file:
        assert "ensemble_accuracy" in file.readline()


def test_the_report_shows_both(chain: Path, variance: Path, tmp_path: Path) -> None:
    succeed("evaluate", chain, "--suite", "chain,variance", "--num-draws", "3")
    stored = read(chain, "evaluation.json")["metrics"]
    assert list(stored) == ["chain"]  # the other does not suit it
    succeed("evaluate", variance, "--suite", "variance", "--num-draws", "3")
    succeed("report", chain, variance, "--page", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    for words in (
        "<h2>Variance networks</h2>",
        "<h2>Chains</h2>",
        "validation accuracy over training",
        "κ of the 1,024 weights",
        "the sampler over its steps",
        "how long the training loss remembers",
        "loss of each stored draw",
    ):
        assert words in text, words


def test_what_cannot_be_recorded(chain: Path, tmp_path: Path) -> None:
    flags = ("--epochs", "1", "--folder", tmp_path / "run")
    assert "'mc_vi' has nothing to record" in fail("train", *SMALL, "--method", "mc_vi", *flags)
    assert "give --val-fraction" in fail("train", *VARIANCE, "--val-fraction", "0", *flags)
    numbers = ("--method", "variance", "--net", "mlp", "--data", "diabetes", "--record")
    assert "this is a regression: leave it out" in fail("train", *numbers, *flags)
    assert not (tmp_path / "run" / "config.json").exists()
    copy = tmp_path / "chain"
    shutil.copytree(chain, copy)
    (copy / "sampler.json").write_text(json.dumps([{"loss": "much"}]))
    assert "sampler.json is damaged" in fail("report", copy, "--page", tmp_path / "r.html")
