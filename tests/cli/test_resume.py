"""`bayesify train --resume`: no run goes on with other data unnoticed, and none is overwritten."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from cli_runs import DIABETES, DIGITS, fail, read, succeed
from test_train_bad_data import table

GENERATOR = np.random.RandomState(0)
X = GENERATOR.standard_normal((40, 6))
Y = X[:, :1] * 10 + 50


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on a table of 30 examples below tmp_path/data."""
    flags = table(tmp_path / "data", X, Y)
    succeed("train", *DIABETES, *flags, "--epochs", "1", "--folder", tmp_path / "run")
    return tmp_path / "run"


def exchange(run: Path, x: np.ndarray, y: np.ndarray) -> None:
    shutil.rmtree(run.parent / "data")
    table(run.parent / "data", x, y)


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_fingerprint_is_in_the_configuration(digits: Path) -> None:
    found = read(digits)["fingerprint"]
    assert set(found) == {"train", "val", "test"}
    assert len(set(found.values())) == 3


def test_other_data_are_refused_with_what_differs(run: Path) -> None:
    more = np.concatenate([X, X + 1])
    exchange(run, more, more[:, :1])
    before = listing(run)
    resume = ("train", "--resume", "--folder", run, "--epochs", "2")
    message = fail(*resume)
    assert "the data are others than those of the run in" in message
    assert "num_train: 27 → 63, num_val: 3 → 7, normalisation.mean: [" in message
    assert "fingerprint.train: other values" in message
    assert "data_changed=True (--data-changed), or choose another folder" in message
    assert "the data are others" in fail(*resume, "--dry-run")
    assert listing(run) == before


def test_examples_of_the_same_number_and_normalisation(run: Path) -> None:
    """Two labels changed places: only the fingerprint knows."""
    y = Y.copy()
    y[[0, 1]] = y[[1, 0]]
    exchange(run, X, y)
    message = fail("train", "--resume", "--folder", run, "--epochs", "2")
    assert "fingerprint.train: other values. Give it" in message
    assert "num_train" not in message and "normalisation" not in message


def test_going_on_with_other_data_on_purpose(run: Path) -> None:
    """config.json is then that of the new data, by which predict and evaluate work."""
    more = np.concatenate([X, 3 * X + 1])
    exchange(run, more, more[:, :1])
    before = read(run)
    result = succeed("train", "--resume", "--data-changed", "--folder", run, "--epochs", "2")
    assert "goes on with other data" in result.stderr
    after = read(run)
    assert (before["task"]["num_train"], after["task"]["num_train"]) == (27, 63)
    assert before["task"]["normalisation"] != after["task"]["normalisation"]
    assert before["fingerprint"] != after["fingerprint"]
    assert before["task"]["scale"] != after["task"]["scale"]
    assert after["train"]["epochs"] == 2
    succeed("evaluate", run)
    succeed("train", "--resume", "--folder", run, "--epochs", "3")
    own = {"train": None, "header_checksum": None}
    assert {**read(run), **own} == {**after, **own}


def test_another_set_or_other_options_of_it(tmp_path: Path) -> None:
    moons = ("--method", "point", "--net", "mlp", "--data", "two_moons", "--folder", tmp_path / "run")
    succeed("train", *moons, "--epochs", "1", "--set", "data.num_train=60")
    resume = ("train", "--resume", "--folder", tmp_path / "run", "--epochs", "2")
    other = ("--set", "data.num_train=80")
    assert "data.num_train is 80 here and 60 in the run" in fail(*resume, *other)
    succeed(*resume, *other, "--data-changed")
    assert read(tmp_path / "run")["data"]["num_train"] == 80
    message = fail("train", *moons[:-1], tmp_path / "new", "--data-changed")
    assert "--data-changed is for --resume" in message


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
def test_a_chain_refuses_another_number_of_examples(tmp_path: Path) -> None:
    """Its draws would be of two posteriors; config.json stays that of the first."""
    run = ("--method", "atmc", "--net", "mlp", "--data", "two_moons", "--folder", tmp_path / "run")
    succeed("train", *run, "--epochs", "2", "--set", "data.num_train=60")
    before = (tmp_path / "run/config.json").read_bytes()
    resume = ("train", "--resume", "--data-changed", "--folder", tmp_path / "run", "--epochs", "4")
    assert "another data set is another posterior" in fail(*resume, "--set", "data.num_train=80")
    assert (tmp_path / "run/config.json").read_bytes() == before
    succeed(*resume, "--set", "data.seed=1")


def test_a_run_of_an_older_version(run: Path) -> None:
    """Sizes, classes and normalisation are compared all the same; the fingerprint is added."""
    config = {key: value for key, value in read(run).items() if key != "fingerprint"}
    (run / "config.json").write_text(json.dumps(config))
    said = succeed("train", "--resume", "--folder", run, "--epochs", "2").stderr
    assert "has no fingerprint of its data (an older bayesify wrote it)" in said
    assert set(read(run)["fingerprint"]) == {"train", "val", "test"}
    (run / "config.json").write_text(json.dumps(config))
    exchange(run, X[:35], Y[:35])
    assert "num_train: 27 → 23" in fail("train", "--resume", "--folder", run, "--epochs", "3")


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_without_a_readable_checkpoint_nothing_is_overwritten(how: str, run: Path) -> None:
    for path in (run / "checkpoints").glob("step-*"):
        path.unlink() if how == "gone" else path.write_bytes(path.read_bytes()[:-9])
    before = listing(run)
    with pytest.warns(UserWarning, match="is damaged") if how == "damaged" else nullcontext():
        message = fail("train", "--resume", "--folder", run, "--epochs", "2")
    assert "has no checkpoint that can be read" in message
    assert "overwrite what it has: model.safetensors, best.safetensors, metrics.csv" in message
    assert ("1 checkpoint." in message) == (how == "damaged")
    assert "Put a sound checkpoint back into" in message and "--folder" in message
    assert listing(run) == before


def test_without_a_configuration_nothing_is_overwritten(run: Path) -> None:
    (run / "config.json").unlink()
    before = listing(run)
    message = fail("train", *DIGITS, "--resume", "--folder", run)
    assert "has no config.json, so no run can go on there" in message
    assert "summary.json, model.safetensors, best.safetensors, metrics.csv, 1 checkpoint. Put" in message
    assert listing(run) == before


def test_a_run_killed_before_its_first_checkpoint_begins_again(digits: Path, tmp_path: Path) -> None:
    """There is a configuration and nothing else: nothing is lost."""
    (tmp_path / "config.json").write_bytes((digits / "config.json").read_bytes())
    succeed("train", "--resume", "--folder", tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (digits / "model.safetensors").read_bytes()


def test_settings_changed_by_hand_are_said(run: Path) -> None:
    config = read(run)
    config["method"]["prior"]["std"] = 0.25
    (run / "config.json").write_text(json.dumps(config))
    with pytest.warns(
        UserWarning, match=r"settings are others than those of the run .*prior.std: 1.0 → 0.25"
    ):
        succeed("train", "--resume", "--folder", run, "--epochs", "2")
