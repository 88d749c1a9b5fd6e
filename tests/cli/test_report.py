"""`bayesify evaluate --suite`, `bayesify report` and `bayesify demo`."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import DIGITS, fail, read, succeed

from bayesify.cli.demo import COMPARED
from bayesify.cli.letters import LETTERS, letters
from bayesify.methods import METHODS
from bayesify.report import Report
from bayesify.studies.suites import Evaluation


@pytest.fixture(scope="module")
def runs(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """mc_vi with two seeds, and the plain network."""
    folder = tmp_path_factory.mktemp("report")
    shutil.copytree(digits, folder / "vi-0")
    succeed("train", *DIGITS, "--seed", "1", "--folder", folder / "vi-1")
    succeed("train", *DIGITS, "--method", "point", "--folder", folder / "point")
    return [folder / name for name in ("vi-0", "vi-1", "point")]


# -- suites -------------------------------------------------------------------------------------------------
def test_suites_are_shown_stored_and_written(runs: list[Path], tmp_path: Path) -> None:
    files = ("--json", tmp_path / "m.json", "--csv", tmp_path / "m.csv")
    result = succeed("evaluate", runs[0], "--suite", "calibration,ood", "--num-draws", "3", *files)
    stored = read(runs[0], "evaluation.json")
    assert set(stored["metrics"]) == {"calibration", "ood"}
    assert stored["facts"] == {"weights": "last", "num_draws": 3, "num_bins": 15}
    assert json.loads((tmp_path / "m.json").read_text())["suites"] == stored["metrics"]
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["suite"] for row in rows} == {"calibration", "ood"}
    assert "Suite calibration" in result.stdout
    assert "noise/auroc" in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    plain = succeed("evaluate", runs[0], "--num-draws", "3", "--json", tmp_path / "n.json")
    assert plain.exit_code == 0
    numbers = json.loads((tmp_path / "n.json").read_text())["metrics"]
    assert stored["metrics"]["calibration"]["nll"] == pytest.approx(numbers["nll"], rel=1e-6)


def test_other_data_as_unknown_inputs(runs: list[Path]) -> None:
    succeed("evaluate", runs[1], "--suite", "ood", "--ood", "digits", "--num-draws", "2")
    found = read(runs[1], "evaluation.json")["metrics"]["ood"]
    assert 0.3 < found["digits/auroc"] < 0.7  # the same inputs again
    assert "has input shape (13,)" in fail("evaluate", runs[1], "--suite", "ood", "--ood", "wine")


def test_regression_has_the_suite_calibration(diabetes: Path, tmp_path: Path) -> None:
    copy = tmp_path / "diabetes"
    shutil.copytree(diabetes, copy)
    succeed("evaluate", copy, "--suite", "calibration")
    assert read(copy, "evaluation.json")["metrics"]["calibration"]["crps"] > 1  # in original units
    assert "suite 'ood' is for classification" in fail("evaluate", copy, "--suite", "ood")
    result = succeed("report", copy, "--page", tmp_path / "r.html")
    assert "RMSE" in result.stdout
    assert "Predicted intervals" in (tmp_path / "r.html").read_text()


def test_predictions_of_the_whole_part(digits: Path, tmp_path: Path) -> None:
    files = ("--predictions", tmp_path / "p.npz", "--json", tmp_path / "m.json")
    succeed("evaluate", digits, *files, "--num-draws", "3")
    accuracy = json.loads((tmp_path / "m.json").read_text())["metrics"]["accuracy"]
    with np.load(tmp_path / "p.npz") as found:
        assert found["probs"].shape == (359, 10)
        assert (found["label"] == found["target"]).mean() == pytest.approx(accuracy)


def test_what_cannot_be_asked_for(digits: Path) -> None:
    assert "Did you mean 'corruption'" in fail("evaluate", digits, "--suite", "corrupton")
    assert "give --suite ood" in fail("evaluate", digits, "--ood", "wine")
    assert "leave out --data" in fail("evaluate", digits, "--suite", "ood", "--split", "val")


# -- report -------------------------------------------------------------------------------------------------
def test_runs_side_by_side(runs: list[Path], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("r.html", "t.md", "t.csv", "t.tex")]
    flags = ("--page", files[0], "--markdown", files[1], "--csv", files[2], "--latex", files[3])
    result = succeed("report", *runs, *flags, COLUMNS="160")
    assert "r.html" in result.stdout
    text = files[0].read_text()
    assert "<h2>Calibration</h2>" in text
    assert "Nazarovs" in text
    assert "± " in text  # two seeds are one row
    with files[2].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["mc_vi mlp", "point"]
    one = read(runs[2], "evaluation.json")["metrics"]["calibration"]
    assert float(rows[1]["accuracy"]) == pytest.approx(one["accuracy"])
    assert "| run | accuracy ↑ |" in files[1].read_text()
    assert r"\toprule" in files[3].read_text()
    assert "ECE (15 bins)" in files[3].read_text()


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    assert "holds no run" in fail("report", tmp_path)


# -- demo ---------------------------------------------------------------------------------------------------
def test_every_compared_method_exists() -> None:
    assert set(METHODS) >= {*COMPARED.values()}
    assert {*COMPARED.values()} == {"point", "deep_ensemble", "mc_vi", "emp", "vdp", "atmc", "variance"}


def test_letters_fill_the_picture() -> None:
    drawn = letters(8)
    assert len(drawn) % len(LETTERS) == 0
    assert drawn.shape[1:] == (1, 8, 8)
    assert float(drawn.amax((1, 2, 3)).min()) == 1
    assert float(drawn.mean((1, 2, 3)).min()) > 0.1


def test_demo_fits_80_columns_and_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of two methods: drawing those of seven takes long, and is the same."""
    monkeypatch.setattr("bayesify.report.Report.__init__", first_two(Report.__init__))
    page = tmp_path / "demo.html"
    result = succeed("demo", "--epochs", "2", "--num-draws", "2", "--page", page)
    lines = result.stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    for name in COMPARED:
        (line,) = [line for line in lines if name in line]
        assert line.count("%") == 4
    assert lines[-1].endswith("demo.html")
    text = page.read_text()
    assert all(name in text for name in list(COMPARED)[:2])
    for chapter in (
        "Calibration",
        "Out of distribution",
        "Corruptions",
        "Rotation and noise",
        "Attacks",
        "Saliency",
    ):
        assert f"<h2>{chapter}</h2>" in text


def first_two(make: Any) -> Any:
    def made(report: Report, evaluations: list[Evaluation], *rest: Any) -> None:
        make(report, evaluations[:2], *rest)

    return made
