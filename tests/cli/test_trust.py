"""Opening a run or a model runs nothing that its files name: an attack at every door."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runs import DIGITS, fail, invoke, read, start, succeed
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import bayesify as bf
from bayesify.atomic import read_header
from bayesify.cli.build import build_net

ATTACK = {"name": "os:system", "command": "touch pwned"}
MINE = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def small(num_outputs, input_shape, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[-1] ** 2, width), nn.Linear(width, num_outputs))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; `sys.path` and the modules are put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "trusted_nets", raising=False)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((1, 8, 8), np.float32))
    return tmp_path


@pytest.fixture
def without_sklearn() -> Iterator[None]:
    """scikit-learn is imported anew; the modules that there were are put back, whose classes others compare with."""

    def take() -> dict[str, Any]:
        names = [name for name in sys.modules if name.partition(".")[0] == "sklearn"]
        return {name: sys.modules.pop(name) for name in names}

    before = take()
    yield
    take()
    sys.modules.update(before)


def edited(run: Path, folder: Path, **tables: Any) -> Path:
    """A copy of a run with other tables in its config.json."""
    shutil.copytree(run, folder)
    (folder / "config.json").write_text(json.dumps({**read(run), **tables}))
    return folder


DOORS = {
    "predict": ("predict", "run", "x.npy"),
    "evaluate": ("evaluate", "run"),
    "suite": ("evaluate", "run", "--suite", "calibration"),
    "report": ("report", "run"),
    "resume": ("train", "--resume", "--folder", "run", "--epochs", "3"),
    "dry_run": ("train", "--resume", "--folder", "run", "--dry-run"),
    "config": ("train", "--config", "run/config.json", "--folder", "other"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_command_in_place_of_a_network(door: str, digits: Path, here: Path) -> None:
    edited(digits, here / "run", net=ATTACK, modules_from=str(here))
    before = [*sys.path]
    message = fail(*DOORS[door])
    assert "config.json asks for the network 'os:system'" in message
    assert "--net package.module:factory" in message and "--trust" in message
    assert not (here / "pwned").exists()
    assert sys.path == before


def test_show_only_shows(digits: Path, here: Path) -> None:
    edited(digits, here / "run", net=ATTACK)
    assert "os:system" in succeed("show", "run").stdout
    assert not (here / "pwned").exists()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("table", ["method", "data", "likelihood"])
def test_names_in_other_tables(table: str, door: str, digits: Path, here: Path) -> None:
    """They are looked up in tables of bayesify's own, and not imported without --trust."""
    edited(digits, here / "run", **{table: {**read(digits)[table], **ATTACK}})
    invoke(*DOORS[door])  # a run of another method still predicts: its file says what it is
    assert not (here / "pwned").exists()
    if (table, door) in [("data", "evaluate"), ("method", "resume"), ("likelihood", "resume")]:
        words = "which is code from outside" if table == "data" else "does not exist"
        assert words in fail(*DOORS[door])


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("normalisation", 3),
        ("normalisation", {"mean": "x"}),
        ("class_names", ["zero"]),
        ("class_names", "digits"),
        ("input_shape", [1, -8, 8]),
        ("num_outputs", 1e30),
        ("inputs", None),
        ("scale", [1]),
        ("num_train", "many"),
        ("kind", None),
    ],
)
@pytest.mark.parametrize("door", ["show", "predict", "evaluate", "resume"])
def test_a_fact_of_the_task_of_the_wrong_kind(
    door: str, field: str, bad: Any, digits: Path, here: Path
) -> None:
    edited(digits, here / "run", task={**read(digits)["task"], field: bad})
    assert f"config.json is damaged: task.{field}" in fail(*DOORS.get(door, (door, "run")))


@pytest.mark.parametrize("field", ["kind", "input_shape", "num_outputs", "normalisation"])
def test_a_fact_of_the_task_that_is_missing(field: str, digits: Path, here: Path) -> None:
    task = {key: value for key, value in read(digits)["task"].items() if key != field}
    edited(digits, here / "run", task=task)
    assert f"config.json is damaged: task.{field} is missing" in fail(*DOORS["predict"])


@pytest.mark.parametrize("bad", ["os:system", ["os:system"], {"command": "x"}, {"name": ["os:system"]}, None])
@pytest.mark.parametrize("door", ["predict", "resume", "config"])
def test_a_table_of_the_wrong_kind(door: str, bad: Any, digits: Path, here: Path) -> None:
    edited(digits, here / "run", net=bad)
    assert "config.json is damaged: net" in fail(*DOORS[door])


@pytest.mark.usefixtures("without_sklearn")
@pytest.mark.parametrize("door", ["predict", "evaluate", "report", "resume"])
def test_a_stray_module_beside_a_run_is_not_executed(door: str, digits: Path, here: Path) -> None:
    """The current folder is not searched for networks of bayesify's own, whose data import scikit-learn."""
    shutil.copytree(digits, here / "run")
    for name in ("sklearn", "stray_module", "PIL"):
        (here / f"{name}.py").write_text("from pathlib import Path\nPath('pwned').touch()\n")
    before = [*sys.path]
    succeed(*DOORS[door])
    assert sys.path == before
    assert not (here / "pwned").exists()


@pytest.mark.usefixtures("without_sklearn")
def test_an_own_network_cannot_hide_an_installed_package(here: Path) -> None:
    """With --net the current folder is searched last."""
    (here / "trusted_nets.py").write_text(MINE + "import numpy\nassert hasattr(numpy, 'ndarray')\n")
    (here / "sklearn.py").write_text("raise SystemExit('pwned')")
    succeed("train", *DIGITS[:2], "--net", "trusted_nets:small", "--data", "digits", "--epochs", 1)


@pytest.mark.parametrize("where", ["as trained", "elsewhere"])
def test_two_ways_on(where: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "trusted_nets.py").write_text(MINE)
    own = ("train", *DIGITS[:2], "--data", "digits", "--epochs", "1", "--folder", here / "run")
    succeed(*own, "--net", "trusted_nets:small", "--set", "net.width=3")
    monkeypatch.delitem(sys.modules, "trusted_nets")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(here)])
    (here / "imported").unlink()
    if where == "elsewhere":
        (here / "there").mkdir()
        monkeypatch.chdir(here / "there")
    for command in (("predict", here / "run", here / "x.npy"), ("evaluate", here / "run")):
        assert "asks for the network 'trusted_nets:small'" in fail(*command)
        assert "trusted_nets" not in sys.modules
        if where == "as trained":
            succeed(*command, "--net", "trusted_nets:small")
        else:  # found from the folder in which it was trained, and said before it is imported
            said = succeed(*command, "--trust").stderr
            assert "--trust: importing and calling 'trusted_nets:small', as" in said
            assert (f"which may come from {here}" in said) == (command[0] == "predict")
        del sys.modules["trusted_nets"]
    resumed = ("train", "--resume", "--folder", here / "run", "--epochs", "2")
    assert "asks for the network" in fail(*resumed)
    way = ("--net", "trusted_nets:small") if where == "as trained" else ("--trust",)
    succeed(*resumed, *way)
    monkeypatch.delitem(sys.modules, "trusted_nets")
    assert "asks for the network" in fail("report", here / "run")
    succeed("report", here / "run", *way)
    succeed("report", here / "run")  # what was evaluated needs no network


def test_the_factory_may_have_moved(here: Path, digits: Path) -> None:
    """--net names it where it is now; of a network of bayesify's own there is nothing to name."""
    (here / "trusted_nets.py").write_text(MINE)
    own = ("train", *DIGITS[:2], "--data", "digits", "--epochs", "1", "--folder", "run")
    succeed(*own, "--net", "trusted_nets:small", "--set", "net.width=3")
    (here / "moved").mkdir()
    (here / "trusted_nets.py").rename(here / "moved/trusted_nets.py")
    succeed("evaluate", "run", "--net", "moved.trusted_nets:small")
    message = fail("evaluate", digits, "--net", "moved.trusted_nets:small")
    assert "is of the network 'mlp'; leave --net out" in message


def test_the_same_in_a_process_of_its_own(digits: Path, here: Path) -> None:
    edited(digits, here / "run", net=ATTACK, modules_from=str(here))
    for command in (DOORS["predict"], DOORS["report"]):
        _, errors = (process := start(*command, cwd=here)).communicate(timeout=100)
        assert process.returncode == 2 and "os:system" in errors and "Traceback" not in errors
    assert not (here / "pwned").exists()


def rewritten(path: Path, **header: Any) -> Path:
    """A model file with other entries in its header."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"bayesify": json.dumps({**read_header(path), **header})})
    return path


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("method", {"name": "os:system", "options": {"command": "touch pwned"}}),
        ("method", {"name": "mc_vi", "options": {"prior": {"prior": "os:system", "options": {}}}}),
        ("method", {"name": "mc_vi", "options": {"family": "os:system"}}),
        ("method", {"name": "atmc", "options": {"sampler": "os:system"}}),
        ("method", {"name": "deep_ensemble", "options": {"method": {"method": "os:system", "options": {}}}}),
        ("likelihood", {"name": "os:system", "options": {"command": "touch pwned"}}),
    ],
)
def test_a_model_file_whose_header_names_a_command(entry: str, value: Any, here: Path) -> None:
    def net() -> nn.Module:
        return nn.Linear(3, 2)

    bf.save(bf.bayesify(net(), bf.MonteCarloVI(), num_data=8), "model.safetensors")
    path = rewritten(here / "model.safetensors", **{entry: value})
    with pytest.raises(ValueError, match="'os:system'.*(does not exist|not known here)"):
        bf.load(path, net())
    assert not (here / "pwned").exists()


def test_a_network_of_transformers_does_not_search_the_current_folder(here: Path) -> None:
    """It is an installed package's, and looks for many others that may not be there."""
    pytest.importorskip("transformers")
    before = [*sys.path]
    options = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    build_net({"name": "transformers:vit", "patch_size": 4, **options}, 10, (3, 8, 8))
    assert sys.path == before


def test_a_run_that_is_opened_fetches_nothing(
    digits: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data are downloaded where the command line says so, not where config.json does."""

    def fetched(*_: Any, **__: Any) -> None:
        raise OSError("asked the network")

    monkeypatch.setattr("urllib.request.urlopen", fetched)
    table = {"name": "mnist", "root": str(here), "download": True}
    edited(digits, here / "run", data=table)
    assert "not found; searched" in fail(*DOORS["evaluate"])
    assert sorted(path.name for path in here.iterdir()) == ["run", "x.npy"]
    assert "asked the network" in fail(*DOORS["evaluate"], "--set", "data.download=true")
