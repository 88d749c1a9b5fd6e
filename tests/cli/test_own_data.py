"""Data of one's own on the command line: tables, folders, factories."""

import csv
import json
import sys
from pathlib import Path

import pytest
from cli_runs import fail, read, succeed

pytestmark = pytest.mark.filterwarnings("ignore:.*column 'id' is left out")
CITIES = ("Ulm", "Bonn", "Kiel")
FAST = ("--method", "point", "--net", "mlp", "--set", "net.hidden=8", "--epochs", "2")


def rows(n: int, *, flat: str = "") -> str:
    lines = [
        f"house {i},{1 + i % 5},{CITIES[i % 3]},{20 * (i % 5) + 3 * (i % 3) + i / 100:.2f}" for i in range(n)
    ]
    return "\n".join(["id,rooms,city,price", *lines]) + "\n" + flat


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("houses")
    (folder / "houses.csv").write_text(rows(150))
    succeed("train", *FAST, "--data", folder / "houses.csv", "--folder", folder / "run")
    return folder


def test_a_table_is_described(houses: Path) -> None:
    text = " ".join(succeed("show", "data", houses / "houses.csv").stdout.split())
    assert "regression of price" in text
    assert "city 3 categories: Bonn, Kiel, Ulm 3" in text
    assert "task classification of city" in " ".join(
        succeed("show", "data", houses / "houses.csv", "--set", "data.target=city").stdout.split()
    )


def test_what_is_known_of_the_table_is_in_the_run(houses: Path) -> None:
    config = read(houses / "run")
    assert (config["data"]["name"], config["data"]["root"]) == ("table", str(houses / "houses.csv"))
    assert [each["name"] for each in config["task"]["encoding"]["columns"]] == ["rooms", "city"]


def test_tables_are_predicted_by_the_columns_of_training(houses: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/a.csv").write_text(
        "city,extra,rooms\nKiel,1,2\nUlm,2,5\n"
    )  # another order, and no prices
    (tmp_path / "new/b.csv").write_text("rooms,city\n2,Kiel\n")
    succeed("predict", houses / "run", tmp_path / "new", "--csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [Path(row["file"]).name for row in found] == ["a.csv", "a.csv", "b.csv"]
    means = [float(row["mean"]) for row in found]
    assert means[0] == pytest.approx(means[2], rel=1e-5) != pytest.approx(means[1], rel=1e-5)
    (tmp_path / "rome.csv").write_text("rooms,city\n2,Rome\n")
    assert "column 'city' holds 'Rome'" in fail("predict", houses / "run", tmp_path / "rome.csv", code=1)
    (tmp_path / "less.csv").write_text("city\nUlm\n")
    assert "column='rooms' does not exist" in fail("predict", houses / "run", tmp_path / "less.csv", code=1)
    (tmp_path / "none").mkdir()
    assert "holds no file that can be read" in fail("predict", houses / "run", tmp_path / "none", code=1)


def test_another_table_is_coded_as_that_of_the_run(houses: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("city,price,rooms\nUlm,20,2\nUlm,40,3\nKiel,6,1\n")  # two of three cities
    written = tmp_path / "metrics.json"
    succeed("evaluate", houses / "run", "--data", other, "--json", written)
    assert json.loads(written.read_text())["metrics"]["num_data"] == 3


def test_a_table_that_changed_is_noticed(houses: Path, tmp_path: Path) -> None:
    copy = tmp_path / "houses.csv"
    copy.write_text(rows(150, flat="house 151,2,Rome,9\n"))
    assert "has input shape (5,)" in fail("evaluate", houses / "run", "--data-root", copy)
    again = ("train", "--resume", "--folder", houses / "run", "--epochs", "3", "--data-root", copy)
    assert "--data-changed" in fail(*again)


def test_classes_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(rows(150))
    succeed("train", *FAST, "--data", tmp_path / "a.csv", "--target", "city", "--folder", tmp_path / "run")
    assert read(tmp_path / "run")["task"]["class_names"] == ["Bonn", "Kiel", "Ulm"]
    text = succeed("predict", tmp_path / "run", tmp_path / "a.csv").stdout
    assert "confidence" in text


FACTORY = """
import torch
def make(n=60):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return (x, y), (x, y)
"""


def test_a_factory_is_called_where_the_command_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_data.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run = tmp_path / "run"
    succeed("train", *FAST, "--data", "my_own_data:make", "--set", "data.n=40", "--folder", run)
    for command in (
        ("evaluate", run),
        ("train", "--resume", "--folder", run, "--epochs", "3"),
        ("train", "--config", run / "config.json", "--folder", tmp_path / "again"),
    ):
        assert "asks for the data set 'my_own_data:make', which is code from outside" in fail(*command)
        trusted = succeed(*command, "--trust")
        assert "--trust: importing and calling 'my_own_data:make'" in trusted.output
    succeed("evaluate", run, "--data", "my_own_data:make", "--set", "data.n=20")
    succeed("predict", run, *(write_array(tmp_path),))


def write_array(folder: Path) -> Path:
    import numpy as np

    np.save(folder / "x.npy", np.zeros((2, 3), np.float32))
    return folder / "x.npy"
