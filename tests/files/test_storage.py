"""Files: everything comes back; whatever is wrong is named and changes nothing."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import bayesify as bf
from bayesify import atomic as files
from bayesify import methods

METHODS = {
    "mc_vi": lambda: bf.MonteCarloVI(prior=bf.prior("normal", std=0.3), kl_weight=0.5, sampling="local"),
    "point": lambda: bf.Point(prior="normal"),
    "deep_ensemble": lambda: bf.DeepEnsemble(bf.MonteCarloVI(init_std=0.2), 3),
}


def mlp(hidden: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 3))


def saved(tmp_path: Path, method: Any = "mc_vi") -> tuple[Any, Path]:
    model = bf.bayesify(mlp(), method, num_data=10)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    path = tmp_path / "model.safetensors"
    bf.save(model, path)
    return model, path


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back(name: str, tmp_path: Path) -> None:
    model, path = saved(tmp_path, METHODS[name]())
    model.kl_weight.fill_(0.25)
    bf.save(model, path)
    loaded = bf.load(path, mlp())
    assert loaded.method.options() == model.method.options()
    assert loaded.num_data == 10
    state = loaded.state_dict()
    assert set(state) == set(model.state_dict())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert loaded.kl_weight == 0.25
    assert loaded.loss(torch.randn(5, 4), torch.zeros(5, dtype=torch.long)).total.isfinite()


@pytest.mark.filterwarnings("ignore:batch norm", "ignore:the chain has no draws yet", "ignore:no draw will")
@pytest.mark.filterwarnings("ignore:no iterate will", "ignore:the posterior has no covariance yet")
@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_can_be_pickled(name: str) -> None:
    """So that models go to other processes."""
    x, y = torch.randn(8, 4), torch.zeros(8, dtype=torch.long)
    model = bf.bayesify(mlp(), name, num_data=8)
    optimizer = model.optimizer(lr=1e-3)
    model.loss(x, y).total.backward()
    optimizer.step()
    again = pickle.loads(pickle.dumps(model))
    one, other = (m.predict(x, 2, generator=torch.Generator().manual_seed(0)).probs for m in (model, again))
    assert torch.equal(one, other)
    again.loss(x, y).total.backward()
    again.optimizer(lr=1e-3).step()


def test_likelihoods_with_state_come_back(tmp_path: Path) -> None:
    model = bf.bayesify(
        nn.Linear(3, 1), "mc_vi", bf.likelihood("normal", std=0.5, learn_std=True), num_data=10
    )
    with torch.no_grad():
        model.likelihood.log_std.fill_(-2.0)
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", nn.Linear(3, 1))
    assert loaded.likelihood.std.item() == pytest.approx(0.1353, abs=1e-4)


def test_the_names_in_the_file_are_readable(tmp_path: Path) -> None:
    model, path = saved(tmp_path)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
    assert {"net.0.weight", "net.1.running_mean", "posterior.q.0.weight.log_scale"} <= names
    assert {k.removeprefix("net.") for k in names if k.startswith("net.")} == set(model.net.state_dict())


def untouched(net: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    hooks = any(m._forward_pre_hooks for m in net.modules())
    return not hooks and all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def refuse(path: Path, net: nn.Module, message: str) -> None:
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        bf.load(path, net)
    assert untouched(net, before)
    bf.bayesify(net, "mc_vi")  # and the network is free


def test_a_missing_file(tmp_path: Path) -> None:
    refuse(tmp_path / "none.safetensors", mlp(), "none.safetensors does not exist")


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_truncated_file(tmp_path: Path, size: int) -> None:
    _, path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    refuse(path, mlp(), "is damaged or not a safetensors file")


def test_one_flipped_bit_is_found_and_its_tensor_named(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    refuse(path, mlp(), "is damaged: the bytes of tensor 'posterior.q")


def test_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"w": torch.ones(2)}, path)
    refuse(path, mlp(), "bayesify did not write it")
    path.write_text("hello")
    refuse(path, mlp(), "damaged or not a safetensors file")


def rewrite_header(path: Path, without: tuple[str, ...] = (), **changes: Any) -> None:
    header = {**files.read_header(path), **changes}
    header = {key: value for key, value in header.items() if key not in without}
    with safe_open(path, framework="pt") as file:
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={files.HEADER: json.dumps(header)})


def test_an_older_file(tmp_path: Path) -> None:
    model, path = saved(tmp_path)
    rewrite_header(path, ("sparse", "calibration"), format=1)  # before sparse models and bf.calibrate
    loaded = bf.load(path, mlp())
    assert loaded.calibration is None
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_newer_file(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    rewrite_header(path, format=99)
    refuse(path, mlp(), "has format 99, this bayesify .* is older: upgrade")


def test_an_unknown_method_in_the_file(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    rewrite_header(path, method={"name": "magic", "options": {}})
    refuse(path, mlp(), "method='magic' does not exist")


def test_another_network(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    refuse(path, mlp(9), r"does not fit this network: 0.weight is \(9, 4\), in the file \(8, 4\)")
    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    refuse(path, other, "only in the network: 2.weight, 2.bias; only in the file: 1.bias")


def test_other_random_weights_than_in_the_file(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    rewrite_header(path, random=["0.weight"])
    refuse(path, mlp(), "does not fit this model: only in the file: posterior.q.0.bias.log_scale")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = saved(tmp_path)
    old = path.read_bytes()

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        bf.save(model, path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_saving_something_else(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be what bf.bayesify returned"):
        bf.save(mlp(), tmp_path / "x")  # type: ignore[arg-type]


def test_a_custom_output_must_be_given_again(tmp_path: Path) -> None:
    model = bf.bayesify(nn.LSTM(4, 3), "mc_vi", output=lambda out: out[0])
    bf.save(model, tmp_path / "m.safetensors")
    with pytest.warns(UserWarning, match=r"give bf.load\(..., output=...\) again"):
        bf.load(tmp_path / "m.safetensors", nn.LSTM(4, 3))


def test_map_location(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    assert next(bf.load(path, mlp(), map_location="cpu").parameters()).device.type == "cpu"


def test_tensors_that_share_memory_are_stored_each_by_itself(tmp_path: Path) -> None:
    """A view of another shape, and part of a larger tensor; equal ones are aliases."""
    whole = torch.arange(6.0)
    shared = {
        "flat": whole,
        "table": whole.view(2, 3),
        "part": whole[1:4],
        "again": whole,
        "turned": whole.view(2, 3).T,
    }
    files.write_tensors(tmp_path / "file.safetensors", shared, {})
    header = files.read_header(tmp_path / "file.safetensors")
    found = files.read_tensors(tmp_path / "file.safetensors", header)
    assert header["aliases"] == {"again": "flat"}
    assert all(torch.equal(found[name], value) for name, value in shared.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_data": 11}, r"has a damaged header \(its bytes have changed\)"),
        ({"checksums": 3}, r"has a damaged header \(checksums is missing, or is not what"),
        ({"aliases": None}, r"has a damaged header \(aliases is missing, or is not what"),
        ({"aliases": {"a": "nowhere"}}, "is damaged: it lacks nowhere"),
        ({"checksums": {"nowhere": 3}}, "is damaged: it lacks nowhere"),
    ],
)
def test_a_header_that_was_changed(change: dict[str, object], message: str, tmp_path: Path) -> None:
    """With its checksum of before, and as older versions wrote it, without one."""
    _, path = saved(tmp_path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        stored = json.loads(file.metadata()[files.HEADER])
    old = stored if "num_data" in change else files.read_header(path)
    save_file(tensors, path, metadata={files.HEADER: json.dumps({**old, **change})})
    refuse(path, mlp(), message)
