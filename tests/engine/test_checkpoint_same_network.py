"""A run is resumed with the sampler and the network it had, or refused with the difference."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, Split

GENERATOR = torch.Generator().manual_seed(1)
DATA = Split(torch.randn(32, 3, generator=GENERATOR), torch.arange(32) % 2)


def mlp(width: int = 4, further: bool = False) -> nn.Module:
    last = [nn.Linear(2, 2)] if further else []
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2), *last)


def run(folder: Path, net: nn.Module, method: Any, epochs: int = 2) -> bf.BayesianModule:
    model = bf.bayesify(net, method, num_data=32)
    bf.fit(model, Loader(DATA, 8), epochs=epochs, lr=1e-3, folder=folder, progress=False, seed=0)
    return model


def files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*.*")) if p.is_file() and p.name != ".lock"}


def test_another_sampler(tmp_path: Path) -> None:
    """Nothing is changed: neither the files nor the model that was to go on."""
    run(tmp_path, mlp(), bf.ThermostatMCMC(burn_in=0, every=1))
    before = files(tmp_path)
    other = bf.bayesify(mlp(), bf.ThermostatMCMC(sampler="sgnht", burn_in=0, every=1), num_data=32)
    weights = [p.detach().clone() for p in other.parameters()]
    with pytest.raises(ValueError, match="drawn by ATMC, this sampler is SGNHT"):
        bf.fit(other, Loader(DATA, 8), epochs=3, lr=1e-3, folder=tmp_path, progress=False)
    assert files(tmp_path) == before
    assert all(torch.equal(p, w) for p, w in zip(other.parameters(), weights, strict=True))
    assert run(tmp_path, mlp(), bf.ThermostatMCMC(burn_in=0, every=1), epochs=3).posterior.num_draws == 12


@pytest.mark.parametrize("method", [bf.Point(), bf.MonteCarloVI()])
def test_another_network(method: Any, tmp_path: Path) -> None:
    run(tmp_path, mlp(further=True), method)
    before = files(tmp_path)
    shape = r"net.0.weight is \(4, 3\) there and \(5, 3\) here"
    with pytest.raises(ValueError, match=f"another network or method: it has also net.3.weight, .*; {shape}"):
        run(tmp_path, mlp(5), method)
    assert files(tmp_path) == before


def test_a_layer_more_than_the_run_had(tmp_path: Path) -> None:
    run(tmp_path, mlp(), bf.Point())
    with pytest.raises(
        ValueError, match=r"it lacks net.3.weight, net.3.bias. Resume it with the same, or choose"
    ):
        run(tmp_path, mlp(further=True), bf.Point())


def test_another_method(tmp_path: Path) -> None:
    run(tmp_path, mlp(), bf.MonteCarloVI())
    with pytest.raises(ValueError, match=r"it has also posterior\..* and 1 more"):
        run(tmp_path, mlp(), bf.Point())


def test_another_network_of_a_chain(tmp_path: Path) -> None:
    run(tmp_path, mlp(), bf.ThermostatMCMC(burn_in=0, every=1))
    before = files(tmp_path)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(5, 3\)"):
        run(tmp_path, mlp(5), bf.ThermostatMCMC(burn_in=0, every=1))
    assert files(tmp_path) == before


def test_other_settings_of_the_optimiser_are_noted(tmp_path: Path) -> None:
    """The run goes on as it was, and says so; with the settings it had there is nothing to say."""

    def go_on(epochs: int, lr: float, temperature: float) -> list[str]:
        method = bf.ThermostatMCMC(temperature=temperature, mass=2.0)
        model = bf.bayesify(mlp(), method, num_data=32)
        options: dict[str, Any] = {"folder": tmp_path, "schedule": "cosine", "progress": False, "seed": 0}
        history = bf.fit(model, Loader(DATA, 8), epochs=epochs, lr=lr, **options)
        return [note for note in history.notes if "asked for" in note]

    assert go_on(1, 1e-3, 0.5) == go_on(2, 1e-3, 0.5) == []
    with pytest.warns(UserWarning, match=r"settings are others .*: method.temperature: 0.5 → 1.0. What"):
        (note,) = go_on(3, 2e-3, 1.0)
    asked, stored = note.split(" asked for, but the stored run has ")
    assert "lr=0.002" in asked and "temperature=1.0" in asked and "mass" not in asked
    assert "lr=0.001" in stored and "temperature=0.5" in stored
