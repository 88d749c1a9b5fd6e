"""The contract of every registered data set, and `load` itself."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from data_files import WRITERS, write_mnist

import bayesify.data
from bayesify.data import DATA, Loader, load

OPTIONS = {"image_folder": {"size": 32, "num_workers": 0}}
NAMES = [name for name in DATA if name != "medmnist3d"] + ["medmnist3d:newmnist3d"]


@pytest.mark.parametrize("name", DATA)
def test_entry_has_a_one_line_description_and_keyword_options_with_defaults(name: str) -> None:
    entry = DATA[name]
    assert 10 < len(entry.description) < 90
    assert "\n" not in entry.description
    assert all(isinstance(v, int | float | str | bool | None) for v in entry.options.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_set_keeps_the_contract(name: str, tmp_path: Path) -> None:
    if name in WRITERS:
        WRITERS[name](tmp_path)
    ds = load(name, tmp_path, **OPTIONS.get(name, {}))
    assert ds.name in (name, tmp_path.name)  # your own have the name of the file or folder
    assert ds.task in ("classification", "regression")
    assert (ds.class_names is None) == (ds.task == "regression")
    for split in (ds.train, ds.test, *([] if ds.val is None else [ds.val])):
        assert tuple(split.inputs.shape) == (len(split), *ds.input_shape)
        loader = Loader(split, 8, normalise=ds.normalisation, augment=ds.augment, shuffle=True)
        for x, y in loader:
            assert x.dtype == torch.float32
            assert x.shape[1:] == ds.input_shape
            assert torch.isfinite(x).all()
            if ds.task == "classification":
                assert y.dtype == torch.int64
                assert y.shape == (len(x),)
                assert 0 <= int(y.min()) <= int(y.max()) < ds.num_outputs == len(ds.class_names)
            else:
                assert y.dtype == torch.float32
                assert y.shape == (len(x), ds.num_outputs)


@pytest.mark.parametrize("name", NAMES)
def test_loading_twice_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    if name in WRITERS:
        WRITERS[name](tmp_path)
    first, second = (load(name, tmp_path, **OPTIONS.get(name, {})) for _ in range(2))
    assert torch.equal(first.train.inputs[:], second.train.inputs[:])
    assert torch.equal(first.test.targets, second.test.targets)


def test_unknown_name_lists_the_choices_and_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"data='mnits' does not exist.*Did you mean 'mnist'"):
        load("mnits")


def test_unknown_option_lists_the_accepted_ones() -> None:
    with pytest.raises(ValueError, match=r"'uci_boston' has no option download; it takes: split=0, target=0"):
        load("uci_boston", "anywhere", download=True)
    with pytest.raises(ValueError, match=r"'digits' has no option split; it takes: none"):
        load("digits", split=1)


def test_a_colon_is_for_medmnist3d_only() -> None:
    with pytest.raises(ValueError, match=r"'mnist:x': only medmnist3d takes a file after the colon"):
        load("mnist:x")


def test_root_defaults_to_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "MNIST/raw")
    monkeypatch.setenv("BAYESIFY_DATA", str(tmp_path))
    assert len(load("mnist").train) == 30
    monkeypatch.delenv("BAYESIFY_DATA")
    with pytest.raises(FileNotFoundError, match=r"'mnist'.*no folder was given.*--data-root.*BAYESIFY_DATA"):
        load("mnist")


def test_import_is_light() -> None:
    code = "import sys, bayesify.data; print([m for m in ('sklearn', 'scipy', 'PIL') if m in sys.modules])"
    path = str(Path(bayesify.data.__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert result.stdout.strip() == "[]", result.stderr


def test_examples_in_docstrings_run() -> None:
    names = [f"bayesify.data.{m.name}" for m in pkgutil.iter_modules(bayesify.data.__path__)]
    attempted = 0
    for name in ["bayesify.data", *names]:
        outcome = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
        assert outcome.failed == 0, name
        attempted += outcome.attempted
    assert attempted >= 10
