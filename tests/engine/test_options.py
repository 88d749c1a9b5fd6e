"""An option is declared once: fit, its documentation, flags, config.json, --resume and checks follow."""

import inspect
import json
import re
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import typer
from cli_runs import DIGITS, read
from typer.testing import CliRunner

import bayesify as bf
from bayesify.checks import accepted, fits
from bayesify.cli import flags, settings, train
from bayesify.cli.errors import Commands
from bayesify.cli.options import TrainTable
from bayesify.cli.show import parse
from bayesify.engine.options import HOW, FitOptions, TrainingOptions
from bayesify.engine.schema import Option, OptionTable, documented, option

LOADERS = ("model", "train_loader", "val_loader")


def test_the_signature_of_fit_is_the_table() -> None:
    """Written out for editors and type checkers; names, types and defaults are those of the fields."""
    kinds = get_type_hints(bf.fit)
    written = {p.name: p for p in inspect.signature(bf.fit).parameters.values() if p.name not in LOADERS}
    declared = FitOptions.options()
    assert set(written) == set(declared)
    for name, parameter in written.items():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert kinds[name] == declared[name].kind, name
        default = MISSING if parameter.default is parameter.empty else parameter.default
        assert default == declared[name].default, name


def test_the_documentation_of_fit_names_every_parameter() -> None:
    named = parse(bf.fit.__doc__ or "")
    assert list(LOADERS) == [name for name in named if name in LOADERS]
    for name, each in FitOptions.options().items():
        assert named[name] == each.described


@pytest.mark.parametrize("name", TrainTable.options())
def test_every_option_is_declared_whole(name: str) -> None:
    each = TrainTable.options()[name]
    assert each.help.endswith(".")
    assert each.heading
    each.check(each.default, name)
    assert (each.default is None) <= bool(each.by_default), "say what None stands for"


def outside(each: Option) -> list[Any]:
    """Values that the declared range excludes."""
    below = [] if each.least is None else [each.least - 1]
    return [*below, *(bound for bound in (each.above, each.below) if bound is not None), float("nan")]


@pytest.mark.parametrize("name", [n for n, each in FitOptions.options().items() if each.bounds])
def test_ranges_hold_everywhere(name: str) -> None:
    each = FitOptions.options()[name]
    for value in outside(each):
        refused = f"{name}={re.escape(repr(value))} must be "
        with pytest.raises(ValueError, match=refused + re.escape(each.accepted)):
            FitOptions(**{"epochs": 1, name: value})
        if name in TrainTable.options():
            words = re.escape(TrainTable.options()[name].accepted)
            with pytest.raises(ValueError, match=f"train.{refused}{words}"):
                TrainTable.of({name: value})


@dataclass(frozen=True, kw_only=True)
class WithFriction(TrainTable):
    """[train] with one more option, as another field of TrainingOptions would be."""

    friction: float = option(HOW, "Share of the last step in the next.", 0.9, least=0, below=1)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command line with that table."""
    monkeypatch.setattr(settings, "TrainTable", WithFriction)
    monkeypatch.setattr(train, "TrainTable", WithFriction)
    monkeypatch.setattr(train.train, "__signature__", None)
    made = typer.Typer(cls=Commands)
    made.callback()(lambda: None)
    made.command()(flags.with_flags(WithFriction)(train.train))
    return made


def run(app: typer.Typer, *arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["train", *map(str, arguments)])


def test_a_new_option_from_end_to_end(app: typer.Typer, tmp_path: Path) -> None:
    text = " ".join(run(app, "--help").stdout.split())
    assert re.search(
        r"--friction <float> \[0<=x<1\] .*Share of the last step in the next\..*\[default: 0.9\]", text
    )
    folder = ("--folder", tmp_path / "run")
    refused = run(app, *DIGITS, *folder, "--friction", "1")
    assert refused.exit_code == 2
    assert "'--friction': friction=1.0 must be a number of at least 0 and below 1 (see" in refused.stderr
    assert run(app, *DIGITS, *folder, "--friction", "0.5").exit_code == 0
    assert read(tmp_path / "run")["train"]["friction"] == 0.5
    other = run(app, "--resume", *folder, "--friction", "0.25")
    assert other.exit_code == 2
    assert "train.friction is 0.25 here and 0.5 in the run" in other.stderr
    assert run(app, "--resume", *folder, "--friction", "0.5", "--epochs", "3").exit_code == 0
    config = read(tmp_path / "run")
    del config["train"]["friction"]  # as a run from before there was such an option
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    other = run(app, "--resume", *folder, "--friction", "0.25")
    assert "train.friction is 0.25 here and 0.9 in the run" in other.stderr
    assert run(app, "--resume", *folder, "--dry-run").exit_code == 0


def test_documentation_of_a_new_option() -> None:
    @documented(WithFriction)
    def own(**_: Any) -> None:
        """Train it."""

    assert parse(own.__doc__ or "")["friction"] == (
        "Share of the last step in the next. At least 0 and below 1."
    )


def test_what_a_run_stores_is_what_fit_takes() -> None:
    stored = {f.name for f in fields(TrainTable)}
    assert {f.name for f in fields(TrainingOptions)} <= stored
    assert set(TrainTable().for_fit()) == {f.name for f in fields(TrainingOptions)}
    apart = TrainTable(members_in_parallel=True).for_fit()
    assert stored - set(apart) >= {"devices", "num_nodes"}


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        (int, [0, -3], [True, 1.0, "1", None], "a whole number"),
        (float | None, [1, 0.5, None], [False, "1"], "a number or None"),
        (bool, [True], [1, "yes"], "true or false"),
        (list[int], [[1], []], [3, ["a"], [1.5]], "a list of whole numbers"),
        (str | Path, ["a", Path("a")], [3], "a text or a Path"),
    ],
)
def test_types_in_words(kind: Any, right: list[Any], wrong: list[Any], words: str) -> None:
    assert all(fits(value, kind) for value in right)
    assert not any(fits(value, kind) for value in wrong)
    assert accepted(kind) == words


def test_a_table_says_nothing_where_all_is_right() -> None:
    assert isinstance(FitOptions(epochs=3, lr=1, devices="auto", schedule=lambda *_: None), OptionTable)


def test_numbers_of_numpy_are_numbers() -> None:
    table = TrainingOptions(
        epochs=np.int64(2), seed=np.int64(1), lr=np.float32(0.5), tensorboard=np.bool_(True)
    )  # type: ignore[arg-type]
    assert json.loads(json.dumps([table.epochs, table.seed, table.lr, table.tensorboard])) == [
        2,
        1,
        0.5,
        True,
    ]
