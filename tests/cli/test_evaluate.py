"""`bayesify evaluate`: the metrics of a run, of another part, of another data set."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_runs import DIGITS, fail, read, succeed

import bayesify as bf
from bayesify.cli.run import Run
from bayesify.cli.units import OriginalUnits
from bayesify.data import DATA, Entry, Loader, load


def metrics(tmp_path: Path, *arguments: object) -> dict[str, float]:
    succeed("evaluate", *arguments, "--json", tmp_path / "m.json")
    return json.loads((tmp_path / "m.json").read_text())["metrics"]


@pytest.mark.parametrize("run", ["digits", "diabetes"])
def test_it_finds_what_training_found(run: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = request.getfixturevalue(run)
    assert metrics(tmp_path, folder) == read(folder, "summary.json")["test"]


def test_files_and_table(digits: Path, tmp_path: Path) -> None:
    flags = ("--split", "val", "--num-draws", "3", "--num-bins", "5", "--batch-size", "50")
    files = ("--json", tmp_path / "m.json", "--csv", tmp_path / "m.csv")
    result = succeed("evaluate", digits, *flags, *files)
    content = json.loads((tmp_path / "m.json").read_text())
    assert content["split"] == "val"
    assert content["weights"] == "last"
    assert content["num_draws"] == 3
    assert content["metrics"]["num_data"] == 144
    assert content["metrics"]["num_bins"] == 5
    with (tmp_path / "m.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["accuracy"]) == content["metrics"]["accuracy"]
    assert f"{100 * content['metrics']['accuracy']:.2f} %" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_original_units_agree_with_a_calculation_by_hand(diabetes: Path, tmp_path: Path) -> None:
    ds, run = load("diabetes"), Run.at(diabetes)
    model = run.model()
    x, y = next(iter(Loader(ds.test, 500, normalise=ds.normalisation)))
    whole = metrics(tmp_path, diabetes, "--batch-size", "500", "--num-draws", "7")
    plain = bf.evaluate(model, [(x, y)], 7, generator=torch.Generator().manual_seed(0))
    scale = float(ds.normalisation.target_std)
    assert whole["rmse"] == pytest.approx(scale * plain["rmse"], rel=1e-5)
    assert whole["std"] == pytest.approx(scale * plain["std"], rel=1e-5)
    assert whole["nll"] == pytest.approx(plain["nll"] + torch.tensor(scale).log().item(), rel=1e-5)
    kept = OriginalUnits(model, ds.normalisation).predict(x, 9, keep_samples=True)
    assert kept.samples.mean(0).flatten().tolist() == pytest.approx(kept.mean.flatten().tolist(), rel=1e-4)
    low, high = kept.interval(0.9)
    inside = (low < ds.test.targets) & (ds.test.targets < high)
    assert float(inside.float().mean()) > 0.7


def test_the_model_of_the_best_epoch(digits: Path, tmp_path: Path) -> None:
    assert metrics(tmp_path, digits, "--best") == metrics(tmp_path, digits, "--last")  # it was the last one
    assert read(digits, "summary.json")["best_epoch"] == 2
    copy = tmp_path / "copy"
    shutil.copytree(digits, copy)
    (copy / "best.safetensors").unlink()
    assert "best.safetensors is not there" in fail("evaluate", copy, "--best")
    (copy / "model.safetensors").write_bytes(b"damaged")
    assert "model.safetensors is damaged" in fail("evaluate", copy)
    (copy / "model.safetensors").unlink()
    assert "finish it with train --resume" in fail("evaluate", copy)


def test_another_data_set_of_the_same_shape(tmp_path: Path) -> None:
    moons = ("--method", "point", "--net", "mlp", "--data", "two_moons", "--epochs", "1")
    succeed("train", *moons, "--folder", tmp_path / "run")
    noisy = metrics(tmp_path, tmp_path / "run", "--set", "data.noise_std=3.0", "--set", "data.num_test=50")
    assert noisy["num_data"] == 50
    own = read(tmp_path / "run", "summary.json")["test"]
    assert noisy["accuracy"] < own["accuracy"]  # normalised as in training, not by its own statistics


def test_draws_see_crops_and_flips(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the data set 'digits' has no augmentation; leave it out" in fail("evaluate", digits, "--augment")
    assert "leave out --suite" in fail("evaluate", digits, "--augment", "--suite", "calibration")
    found = DATA["digits"].load
    cropped = Entry(lambda name, root: replace(found(name, root), augment="crop_flip"), "digits")
    monkeypatch.setitem(DATA, "digits", cropped)
    seen, plain = metrics(tmp_path, digits, "--augment"), metrics(tmp_path, digits)
    assert plain == metrics(tmp_path, digits, "--no-augment")  # trained without crops, so that is the default
    assert seen["nll"] > plain["nll"]  # trained without crops
    assert seen == metrics(tmp_path, digits, "--augment")
    assert json.loads((tmp_path / "m.json").read_text())["augment"] is True
    run, ds = Run.at(digits), load("digits")
    views = replace(ds, normalisation=run.normalisation).views()
    model = OriginalUnits(run.model(), run.normalisation)
    loader = run.loader(ds.test, None, "cpu")
    by_hand = bf.evaluate(model, loader, generator=torch.Generator().manual_seed(0), augment=views)
    assert by_hand["nll"] == pytest.approx(seen["nll"])


def test_what_cannot_be_evaluated(digits: Path, diabetes: Path, tmp_path: Path) -> None:
    assert "data='wine' has input shape (13,), the run in" in fail("evaluate", digits, "--data", "wine")
    assert "has task regression" in fail("evaluate", digits, "--data", "diabetes")
    assert "data='digit' does not exist" in fail("evaluate", digits, "--data", "digit")
    assert "split='tset' does not exist" in fail("evaluate", digits, "--split", "tset")
    assert "only data options can be set here" in fail("evaluate", digits, "--set", "net.hidden=3")
    assert "device 'warp' cannot be used here" in fail("evaluate", digits, "--device", "warp")
    (tmp_path / "file").write_text("")
    assert fail("evaluate", digits, "--json", tmp_path / "file/m.json")
    succeed("train", *DIGITS, "--val-fraction", "0", "--epochs", "1", "--folder", tmp_path / "run")
    assert "has no val part here" in fail("evaluate", tmp_path / "run", "--split", "val")
