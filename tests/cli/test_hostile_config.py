"""A config.json that was mailed: what it asks for is bounded, and named where it cannot be."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import fail, read, succeed

from bayesify.cli.build import sketched
from bayesify.cli.where_text import parse_where

DOORS = {
    "show": ("show", "run"),
    "predict": ("predict", "run", "x.npy"),
    "evaluate": ("evaluate", "run"),
    "report": ("report", "run"),
    "export": ("export", "run", "--out", "model.pt2"),
    "resume": ("train", "--resume", "--folder", "run", "--epochs", "3"),
    "config": ("train", "--config", "run/config.json", "--folder", "new", "--dry-run"),
}


@pytest.fixture
def here(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((1, 8, 8), np.float32))
    shutil.copytree(digits, "run")
    return tmp_path


def change(table: str, **entries: Any) -> None:
    path = Path("run/config.json")
    config = json.loads(path.read_text())
    config[table] |= entries
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("table", "field", "bad"),
    [
        ("data", "root", 3),
        ("train", "val_fraction", "most"),
        ("train", "batch_size", 0),
        ("train", "seed", -1),
        ("versions", "torch", None),
        ("task", "normalisation", {"mean": [0.0] * 7, "std": [1.0]}),
        ("task", "normalisation", {"mean": [0.0], "std": [0.0]}),
        ("task", "input_shape", [1, 2**20, 2**20]),
    ],
)
@pytest.mark.parametrize("door", DOORS)
def test_fields_outside_of_the_task(door: str, table: str, field: str, bad: Any, here: Path) -> None:
    change(table, **{field: bad})
    message = fail(*DOORS[door])
    assert "config.json" in message and f"{table}.{field}" in message


@pytest.mark.parametrize("door", ["resume", "config"])
def test_options_of_the_likelihood(door: str, here: Path) -> None:
    change("likelihood", ignore_index="many")
    message = fail(*DOORS[door])
    assert "config.json" in message and "likelihood.ignore_index='many' must be a whole number" in message


@pytest.mark.parametrize("door", ["predict", "evaluate"])
def test_a_network_that_is_not_that_of_the_file(door: str, here: Path) -> None:
    """Nothing of its size is made."""
    change("net", hidden=[10**9])
    assert "config.json: " in (message := fail(*DOORS[door])) and "GB" in message
    change("net", hidden=[10**6])
    assert "does not fit this network" in fail(*DOORS[door])
    change("net", hidden=[10**30])
    assert "config.json: net='mlp' cannot be made with hidden=" in fail(*DOORS[door])
    change("net", hidden=[1] * 2000)
    assert "config.json: net='mlp': more than 1,000 layers" in fail(*DOORS[door])


@pytest.mark.parametrize("door", ["resume", "config"])
def test_training_a_network_that_does_not_fit_into_memory(door: str, here: Path) -> None:
    change("net", hidden=[10**9])
    assert "GB to be trained, this machine has" in fail(*DOORS[door])


def test_outputs_and_inputs_that_are_not_those_of_the_file(here: Path) -> None:
    change("task", num_outputs=10**6, num_targets=10**6, class_names=None)
    assert "does not fit this network" in fail(*DOORS["predict"])


@pytest.mark.parametrize("door", ["resume", "config"])
def test_several_machines_are_named_on_the_command_line(
    door: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that waits for others never ends."""
    change("train", num_nodes=2)
    assert "asks for 2 machines (train.num_nodes)" in fail(*DOORS[door])
    for command in ("show", "predict", "evaluate"):
        succeed(*DOORS[command])
    change("train", num_nodes=1, devices=10**6)
    assert "asks for 1000000 devices, this machine has" in fail(*DOORS[door])


REPEATS = ["(a+)+$", "(a|a)*b", "(.*)*x", r"(\w+\.?)+$", "(a?){9}a", ".*.*.*.*.*x"]
READ_OTHERWISE = [r"(?x)([\w.]+) +!", r"([\w.]+)(?#)+!", r"(?i-x:([\w.]+) +!)"]
ALTERNATIVES = [r"(.|\w)" * 30 + "!", "(|.)" * 30 + "!", "(" * 30 + "(|.)" + ")(|.)" * 30]


@pytest.mark.parametrize("pattern", [*REPEATS, *READ_OTHERWISE, *ALTERNATIVES])
def test_patterns_that_may_take_for_ever(pattern: str) -> None:
    with pytest.raises(ValueError, match="may take for ever: leave out repeats"):
        parse_where(f"matching({pattern!r})")


@pytest.mark.parametrize(
    "pattern",
    [
        "head",
        r"layers\.[0-9]+\.weight$",
        "^(conv|fc)",
        "(ab)+",
        "[(a+)+]",
        "^(?!head)",
        "(?i)BN|(?:conv|fc)[12]",
        r"\(a\+\)",
        "a{2,3}",
    ],
)
def test_usual_patterns(pattern: str) -> None:
    assert str(parse_where(f"matching({pattern!r})")) == f"matching({pattern!r})"


def test_the_look_at_a_pattern_is_quick_itself() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        parse_where(f"matching({'[' + chr(92) * 200!r})")
    with pytest.raises(ValueError, match="is not a regular expression"):
        parse_where("matching('a{99999999999999}')")


def test_a_where_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse_where("~" * 10_000 + "all")


def test_a_pattern_in_a_file(here: Path) -> None:
    change("method", where="matching('(a+)+$')")
    assert "may take for ever" in fail(*DOORS["config"])


def test_networks_of_others_have_no_sketch() -> None:
    assert sketched({"name": "package.module:net"}, 3, (4,)) is None


def test_a_changed_config_is_said(here: Path) -> None:
    assert "header_checksum" in read(Path("run"))
    change("task", class_names=["x"] * 10)
    with pytest.warns(UserWarning, match=r"run/config.json was changed since bayesify wrote it"):
        succeed("show", "run")


@pytest.mark.parametrize("text", ["epoch,loss\n1\n", "epoch,loss\n1,2,3\n", "epoch\n" + '"' + "x" * 200_000])
def test_damaged_metrics(text: str, here: Path) -> None:
    Path("run/metrics.csv").write_text(text)
    assert "metrics.csv is damaged" in fail("show", "run")


@pytest.mark.parametrize(
    ("field", "bad"), [("test", 3), ("notes", "x"), ("seconds", -1), ("num_draws", None)]
)
def test_damaged_summary(field: str, bad: Any, here: Path) -> None:
    summary = read(Path("run"), "summary.json") | {field: bad}
    Path("run/summary.json").write_text(json.dumps(summary))
    assert f"summary.json is damaged: {field}" in fail("show", "run")
