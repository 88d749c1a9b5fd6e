"""Files, flags and --set become one configuration; what is wrong is named."""

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from bayesify.cli import settings, show, where_text
from bayesify.cli.build import build_method, full_likelihood, full_method, full_net
from bayesify.cli.options import TrainTable
from bayesify.cli.settings import contradictions, from_assignments, from_file, merged, parse_value
from bayesify.cli.where_text import NAMES, parse_where
from bayesify.methods import METHODS
from bayesify.nets import NETS
from bayesify.weights.where import Candidate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("1e-3", 1e-3),
        (".5", 0.5),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("relu", "relu"),
        ("64,32", [64, 32]),
        ("[64, 32]", [64, 32]),
        ("(64, 32)", "(64, 32)"),
        ("~norm & linear", "~norm & linear"),
        ("'quoted'", "quoted"),
        ("1-2", "1-2"),
        ("", ""),
    ],
)
def test_values_of_set(text: str, value: Any) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_assignments_become_tables() -> None:
    tables = from_assignments(["method.init_std=0.1", "method.prior.std=0.3", "data.split=3"])
    assert tables == {"method": {"init_std": 0.1, "prior": {"std": 0.3}}, "data": {"split": 3}}


@pytest.mark.parametrize("text", ["method", "init_std=3", "method.=3", "=", "method.init_std"])
def test_an_assignment_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"must read TABLE.OPTION=VALUE"):
        from_assignments([text])


def test_an_assignment_to_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'methd' does not exist.*Did you mean 'method'"):
        from_assignments(["methd.init_std=3"])


def test_later_layers_win_and_another_name_drops_the_old_options() -> None:
    file = {
        "method": {"name": "mc_vi", "init_std": 0.1, "prior": "normal"},
        "data": {"name": "a", "root": "r"},
    }
    same = merged(file, {"method": {"name": "mc_vi", "prior": {"std": 2.0}}})
    assert same["method"] == {"name": "mc_vi", "init_std": 0.1, "prior": {"name": "normal", "std": 2.0}}
    other = merged(file, {"method": {"name": "point"}, "data": {"name": "b"}})
    assert other == {"method": {"name": "point"}, "data": {"name": "b", "root": "r"}}
    assert file["method"]["prior"] == "normal"


def test_files(tmp_path: Path) -> None:
    toml = tmp_path / "a.toml"
    toml.write_text('[train]\nlr = 0.5\n[method]\nname = "mc_vi"\n[method.prior]\nstd = 0.5\n')
    tables = {"train": {"lr": 0.5}, "method": {"name": "mc_vi", "prior": {"std": 0.5}}}
    assert from_file(toml) == tables
    (tmp_path / "a.json").write_text(json.dumps(tables))
    assert from_file(tmp_path / "a.json") == tables


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[train", "is not valid .toml"),
        ("a.json", "{", "is not valid .json"),
        ("a.json", "[1]", "must hold the tables train, method"),
        ("a.toml", "[trian]\nlr=1", "'trian' does not exist.*Did you mean 'train'"),
        ("a.toml", "train = 3", r"train must be a table, \[train\]"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        from_file(tmp_path / name)
    with pytest.raises(ValueError, match="gone.toml cannot be read: No such file"):
        from_file(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"epochs": 0}, "train.epochs=0 must be a whole number of at least 1"),
        ({"epochs": True}, "train.epochs=True must be a whole number"),
        ({"lr": "fast"}, "train.lr='fast' must be a number"),
        ({"epoch": 3}, "'epoch' does not exist.*Did you mean 'epochs'"),
        ({"schedule": "cosin"}, "schedule='cosin' does not exist.*Did you mean 'cosine'"),
        ({"val_fraction": 1.0}, "train.val_fraction=1.0 must be a number of at least 0 and below 1 or None"),
        ({"compile": "yes"}, "compile='yes' must be true, false or 'auto'"),
        ({"augment": 1}, "train.augment=1 must be true or false"),
    ],
)
def test_train_options_that_are_wrong(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainTable.of(table)


def test_devices_may_be_a_text() -> None:
    assert TrainTable.of({"devices": "2"}).devices == 2
    assert TrainTable.of({"devices": "auto"}).devices == "auto"
    assert TrainTable.of({"lr": 1}).lr == 1


def test_contradictions_name_both_values() -> None:
    stored = {"train": {"lr": 0.1}, "method": {"prior": {"name": "normal", "std": 1.0}, "where": "~norm"}}
    assert (
        contradictions(stored, {"train": {"lr": 0.1}, "method": {"prior": "normal", "where": "~ norm"}}) == []
    )
    found = contradictions(stored, {"train": {"lr": 0.2}, "method": {"prior": {"std": 2.0}}})
    assert found == [
        "train.lr is 0.2 here and 0.1 in the run",
        "method.prior.std is 2.0 here and 1.0 in the run",
    ]


@pytest.mark.parametrize("text", [*NAMES, "~norm", "(linear & ~output)", "(norm | matching('head'))"])
def test_where_as_text_goes_there_and_back(text: str) -> None:
    assert str(parse_where(text)) == text


def test_where_chooses() -> None:
    chosen = parse_where("linear & ~matching('^head')")
    assert chosen(Candidate("body.weight", "linear"))
    assert not chosen(Candidate("head.weight", "linear"))
    assert not chosen(Candidate("body.weight", "conv"))


@pytest.mark.parametrize("text", ["", "linear &", "__import__('os')", "linear + norm", "matching(3)", "f()"])
def test_where_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse_where(text)
    with pytest.raises(ValueError, match="Did you mean 'linear'"):
        parse_where("linaer")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_from_its_full_table(name: str) -> None:
    table = full_method({"name": name})
    method = build_method(json.loads(json.dumps(table)))
    assert method == METHODS[name]() or method.options() == METHODS[name]().options()


def test_nested_methods_and_priors() -> None:
    table = full_method({"name": "deep_ensemble", "method": {"name": "mc_vi", "prior": {"std": 0.5}}})
    assert table["method"]["prior"] == {"name": "normal", "mean": 0.0, "std": 0.5}
    assert build_method(table).method.prior.std == 0.5  # type: ignore[attr-defined]
    assert build_method(full_method({"name": "mc_vi", "where": "output"})).where.text == "output"
    for wrong, near in (({"init_sdt": 1}, "init_std"), ({"prior": {"sdt": 1}}, "std")):
        with pytest.raises(ValueError, match=f"Did you mean '{near}'"):
            full_method({"name": "mc_vi", **wrong})


@pytest.mark.parametrize("name", NETS)
def test_the_options_of_every_net_can_stand_in_a_file(name: str) -> None:
    assert set(full_net({"name": name})) == {"name", *NETS[name].options}


def test_likelihoods_follow_the_task() -> None:
    assert full_likelihood({}, "classification")["name"] == "categorical"
    assert full_likelihood({}, "regression") == {"name": "normal", "std": None, "learn_std": None}
    assert full_likelihood({"std": 0.5}, "regression")["std"] == 0.5
    assert full_likelihood({"name": "heteroscedastic"}, "regression") == {"name": "heteroscedastic"}
    with pytest.raises(ValueError, match=r"for classification, the data are for regression: use normal, het"):
        full_likelihood({"name": "bernoulli"}, "regression")


def test_examples_in_docstrings_run() -> None:
    for module in (settings, show, where_text):
        assert doctest.testmod(importlib.import_module(module.__name__)).failed == 0
