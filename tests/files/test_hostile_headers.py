"""Model files whose checksums are right and whose headers say what cannot be: one error, which names the file."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import bayesify as bf
from bayesify.atomic import (
    SEAL,
    read_header,
    read_json,
    read_tensors,
    sealed,
    sealed_json,
    write_json,
    write_tensors,
)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def stored(tmp_path: Path, method: Any = None) -> Path:
    path = tmp_path / "model.safetensors"
    bf.save(bf.bayesify(net(), bf.MonteCarloVI() if method is None else method, num_data=100), path)
    return path


def changed(path: Path, **entries: Any) -> None:
    """Entries of the header replaced, or removed where None is given as ...; the checksums fit."""
    header = read_header(path)
    tensors = read_tensors(path, header)
    new = {key: value for key, value in {**header, **entries}.items() if value is not ...}
    write_tensors(path, tensors, new)


OPTIONS = {"name": "categorical", "options": {"class_dim": 10**6}}
RULE = {"score": "aps", "coverage": 0.9, "thresholds": [0.5], "num_draws": 1, "num_data": 1}
EVIL = {"prior": "per_layer", "options": {"rules": [["(a+)+!", "normal"]]}}
SPARSE = {"shape": [2**40], "places": "posterior.q.0.bias.loc"}


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ({"method": {}}, "method.name"),
        ({"method": {"name": "mc_vi", "options": []}}, "method.options"),
        ({"method": {"name": "mc_vi", "options": {"num_kl_draws": 1e30}}}, "num_kl_draws"),
        ({"num_data": ...}, "num_data"),
        ({"num_data": -3}, "num_data"),
        ({"random": ...}, "random"),
        ({"random": [{}]}, "random"),
        ({"likelihood": ...}, "likelihood"),
        ({"likelihood": OPTIONS}, "class_dim"),
        ({"custom_output": ...}, "custom_output"),
        ({"sparse": None}, "sparse"),
        ({"sparse": {"net.0.weight": SPARSE}}, "does not fit this network"),
        ({"sparse": {"posterior.q.0.weight.loc": SPARSE}}, "sparse.posterior.q.0.weight.loc"),
        ({"format": []}, "format"),
        ({"calibration": "hot"}, "calibration"),
        ({"calibration": float("nan")}, "calibration"),
        ({"conformal": 3}, "conformal"),
        ({"conformal": {}}, "score"),
        ({"conformal": {**RULE, "coverage": 2}}, "coverage"),
        ({"conformal": {**RULE, "thresholds": [float("nan")]}}, "thresholds"),
        ({"conformal": {**RULE, "more": 1}}, "more"),
        ({"conformal": {**RULE, "num_free": 2**63}}, "num_free"),
        ({"posterior": {"names": 3}}, "names"),
        ({"method": {"name": "mc_vi", "options": {"prior": EVIL}}}, "may take for ever"),
    ],
)
def test_a_header_that_cannot_be(entries: dict[str, Any], field: str, tmp_path: Path) -> None:
    path, mine = stored(tmp_path), net()
    changed(path, **entries)
    with pytest.raises(ValueError, match=f"model.safetensors.*{field}"):
        bf.load(path, mine)
    bf.bayesify(mine, bf.MonteCarloVI())  # it is as it was


@pytest.mark.parametrize(
    ("told", "field"),
    [({"reasons": [], "log_evidence": 1.0}, "reasons"), ({"reasons": {}, "log_evidence": "1"}, "log_ev")],
)
def test_what_a_curvature_says_of_itself(told: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = stored(tmp_path, bf.Laplace("kron"))
    changed(path, posterior=told)
    with pytest.raises(ValueError, match=f"model.safetensors.*{field}"):
        bf.load(path, net())


def test_a_number_of_more_digits_than_python_reads(tmp_path: Path) -> None:
    path = stored(tmp_path, bf.Point())
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = file.metadata()["bayesify"]
    text = text.partition(SEAL)[0].replace('"num_data": 100', f'"num_data": {"1" * 5000}')
    save_file(tensors, path, metadata={"bayesify": sealed(text)})
    with pytest.raises(ValueError, match=r"model.safetensors has a damaged header"):
        bf.load(path, net())


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F8_E4M3"])
def test_a_dtype_that_no_model_has(dtype: str, tmp_path: Path) -> None:
    """Torch has not all that safetensors knows, and some it can only convert."""
    path = stored(tmp_path, bf.Point())
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    as_many = 3 * 8 * 32 // int(dtype[1])  # in the same bytes
    header["net.2.weight"] |= {"dtype": dtype, "shape": [as_many]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    with pytest.raises(ValueError, match=f"model.safetensors: tensor 'net.2.weight' is {dtype}"):
        bf.load(path, net())


@pytest.mark.parametrize("method", [bf.DeepEnsemble(num_members=2), bf.EnsemblePatching(num_components=2)])
def test_more_members_than_the_file_has(method: bf.methods.Method, tmp_path: Path) -> None:
    path = stored(tmp_path, method)
    header = read_header(path)
    name = "num_members" if method.name == "deep_ensemble" else "num_components"
    header["method"]["options"][name] = 9_000
    changed(path, method=header["method"])
    with pytest.raises(
        ValueError, match=f"model.safetensors: method.options.{name} is more than the tensors"
    ):
        bf.load(path, net())


def test_places_outside_of_a_sparse_tensor(tmp_path: Path) -> None:
    model = bf.bayesify(net(), bf.Point())
    with torch.no_grad():
        model.net[0].weight[:7] = 0  # type: ignore[index]
    bf.save(model, path := tmp_path / "model.safetensors")
    header = read_header(path)
    (name,) = header["sparse"]
    tensors = read_tensors(path, header)
    tensors[header["sparse"][name]["places"]] += 30
    write_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=f"sparse.{name} has places outside of its shape"):
        bf.load(path, net())


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder: give a file in it"):
        bf.load(tmp_path, net())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is not a file but a folder, pipe or device"):
        bf.load(tmp_path / "pipe", net())
    for path in (None, 3, ""):
        with pytest.raises(TypeError, match="path=.* must be the name of a file"):
            bf.save(bf.bayesify(net(), bf.Point()), path)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="path=.* must be the name of a file"):
            bf.load(path, net())  # type: ignore[arg-type]


def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    path = stored(tmp_path)
    for name in ("nowhere", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(ValueError, match=f"map_location='{name}' cannot be used here .*: give 'cpu'"):
            bf.load(path, net(), map_location=name)


# -- JSON -------------------------------------------------------------------------------------------------
def test_a_changed_table_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, sealed_json({"a": 1, "b": [0.1, None, "é"]}))
    assert read_json(path) == {"a": 1, "b": [0.1, None, "é"]}
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.warns(UserWarning, match="x.json was changed since bayesify wrote it"):
        assert read_json(path)["b"][0] == 0.2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "x.json is damaged: "),
        ('{"a": NaN}', "x.json is damaged: NaN is no number of JSON"),
        (r'{"a": "\ud800"}', "x.json is damaged: "),
        ("9" * 5_000, "x.json is damaged: "),
        ("", "x.json is damaged: "),
    ],
)
def test_json_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "x.json")


def test_a_text_that_is_too_long(tmp_path: Path) -> None:
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(2**25 + 1)  # takes no room on the disk
    with pytest.raises(ValueError, match="x.json is too long for a file of bayesify"):
        read_json(tmp_path / "x.json")
