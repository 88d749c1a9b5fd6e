"""bf.ThermostatMCMC assembles sampler, prior and chain, and runs under bf.fit."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers import ATMC, PSGLD, SAMPLERS, SGHMC, SGLD, SGNHT
from bayesify.samplers.schedules import Cyclic


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def loader(batch: int = 16) -> DataLoader[Any]:
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch, shuffle=True)


def fit(model: bf.BayesianModule, **options: Any) -> bf.History:
    settings = {"epochs": 10, "lr": 1e-2, "seed": 0, "progress": False, "accelerator": "cpu"}
    return bf.fit(model, loader(), **{**settings, **options})


@pytest.mark.parametrize(
    ("name", "cls"), [("atmc", ATMC), ("sgnht", SGNHT), ("sghmc", SGHMC), ("sgld", SGLD), ("psgld", PSGLD)]
)
def test_the_optimizer_is_the_sampler(name: str, cls: Any) -> None:
    model = bf.bayesify(make_net(), bf.ThermostatMCMC(sampler=name), num_data=64)
    sampler = model.optimizer(lr=1e-3, num_steps=None)
    assert type(sampler) is cls
    assert sampler.num_data == 64
    assert sampler.param_groups[0]["lr"] == 1e-3
    if name == "atmc":
        assert sampler.param_groups[0]["mass"] == pytest.approx(
            64 / 50_000 * 11.11 / 4, rel=1e-3
        )  # of the paper's
        assert sampler.param_groups[0]["thermostat_rate"] == pytest.approx(1e3)


def test_settings_reach_the_sampler() -> None:
    method = bf.ThermostatMCMC(mass=3.0, noise=2.0, max_speed=1.5, thermostat_rate=7.0, temperature=0.5)
    model = bf.bayesify(make_net(), method, num_data=64)
    group = model.optimizer(lr=0.1, num_steps=None).param_groups[0]
    names = ("mass", "noise", "max_speed", "thermostat_rate", "temperature")
    assert [group[name] for name in names] == [3.0, 2.0, 1.5, 7.0, 0.5]


def test_seeds() -> None:
    """By default from the global generator: another seed, another chain."""
    seeds = []
    for seed in (0, 0, 1):
        model = bf.bayesify(make_net(), "atmc", num_data=64)
        torch.manual_seed(seed)
        seeds.append(model.optimizer(num_steps=None).seed)
    assert seeds[0] == seeds[1] != seeds[2]


def test_parameters_that_are_not_random_are_optimised() -> None:
    net = make_net()
    net[0].bias.requires_grad_(False)
    model = bf.bayesify(net, bf.ThermostatMCMC(where=bf.where.output), num_data=64)
    groups = model.optimizer(num_steps=None).param_groups
    assert [len(group["params"]) for group in groups] == [2, 1]
    assert [group["temperature"] for group in groups] == [1.0, 0.0]


@pytest.mark.parametrize("name", [name for name in SAMPLERS if "sgld" not in name])
def test_fit_keeps_draws_over_the_second_half(name: str) -> None:
    model = bf.bayesify(make_net(), bf.ThermostatMCMC(sampler=name, num_kept=10))
    fit(model)
    assert [p.step for p in model.posterior.store.keys] == list(range(22, 41, 2))
    pred = model.predict(torch.randn(5, 2))
    assert pred.num_draws == 10
    assert pred.epistemic.min() > 0


def test_no_more_draws_than_asked_for() -> None:
    """39 steps after the burn-in and 20 draws: every second step would be 19, every step 39."""
    due = bf.ThermostatMCMC(burn_in=0.5, num_kept=20).due(78)
    assert due is not None
    kept = [step for step in range(1, 79) if due(step)]
    assert len(kept) == 20 and kept[0] == 41 and kept[-1] == 78
    assert {b - a for a, b in pairwise(kept)} == {1, 2}
    few = bf.ThermostatMCMC(burn_in=5, num_kept=20).due(8)
    assert few is not None
    assert [step for step in range(1, 9) if few(step)] == [6, 7, 8]


def test_fit_with_a_sampler_of_ones_own_and_cycles() -> None:
    method = bf.ThermostatMCMC(burn_in=8, cycle=8)
    model = bf.bayesify(make_net(), method)
    history = fit(
        model,
        optimizer=lambda parameters: SGNHT(parameters, lr=0.01, num_data=64, mass=64.0),
        schedule=Cyclic(8),
    )
    assert [p.step for p in model.posterior.store.keys] == [16, 24, 32, 40]
    assert history[-1]["lr"] == pytest.approx(0.01)
    assert [row["lr"] for row in fit(bf.bayesify(make_net(), method))] == [
        row["lr"] for row in fit(bf.bayesify(make_net(), method), schedule=Cyclic(8))
    ]
    with pytest.raises(ValueError, match="optimizer=Adam finds a point and does not draw from the posterior"):
        fit(bf.bayesify(make_net(), method), optimizer=torch.optim.Adam)
    with pytest.raises(ValueError, match="sampler has num_data=6400, the model 64 examples: .* num_data=64;"):
        fit(
            bf.bayesify(make_net(), method),
            optimizer=lambda parameters: SGNHT(parameters, lr=0.01, num_data=6400),
        )


def test_fit_writes_draws_beside_its_checkpoints(tmp_path: Path) -> None:
    model = bf.bayesify(make_net(), bf.ThermostatMCMC(num_kept=4))
    fit(model, folder=tmp_path)
    assert len(list((tmp_path / "draws").glob("draw-*.safetensors"))) == 4
    again = bf.load(tmp_path / "model.safetensors", make_net())
    x = torch.randn(5, 2)
    assert torch.equal(again.predict(x).probs, model.predict(x).probs)


JOB = """
import sys
sys.path.insert(0, {tests!r})
import bayesify as bf
from test_thermostat_mcmc import fit, make_net
import time, torch
from pathlib import Path

class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_net()
    def forward(self, x):
        time.sleep({pause})
        return self.net(x)

model = bf.bayesify(Slow(), bf.ThermostatMCMC(num_kept=10))
fit(model, folder={folder!r}, epochs=10, checkpoint_every=3)
"""


def run_job(folder: Path, pause: float) -> "subprocess.Popen[bytes]":
    source = str(Path(bf.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    code = textwrap.dedent(JOB).format(tests=str(Path(__file__).parent), folder=str(folder), pause=pause)
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE)


def test_killed_in_the_middle_of_the_chain_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """kill −9 after some draws; the run started again ends with the files of one that was never stopped."""
    whole = run_job(tmp_path / "whole", 0.0)
    killed = run_job(tmp_path / "killed", 0.08)
    deadline = time.monotonic() + 100
    while len(list((tmp_path / "killed" / "draws").glob("draw-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    _, errors = whole.communicate(timeout=100)
    assert whole.returncode == 0, errors
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = run_job(tmp_path / "killed", 0.0)
    _, errors = resumed.communicate(timeout=100)
    assert resumed.returncode == 0, errors
    for name in (*(f"draws/{p.name}" for p in (tmp_path / "whole/draws").iterdir()), "model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_another_data_set_is_another_chain(tmp_path: Path) -> None:
    model = bf.bayesify(make_net(), "atmc", num_data=64)
    fit(model, folder=tmp_path, epochs=1)
    other = bf.bayesify(make_net(), "atmc", num_data=65)
    with pytest.raises(ValueError, match="num_data=64, this sampler 65"):
        fit(other, folder=tmp_path, epochs=2)


@pytest.mark.parametrize(
    ("sampler", "name", "value"),
    [("sgld", "mass", 2.0), ("psgld", "noise", 3.0), ("sghmc", "thermostat_rate", 2.0)],
)
def test_settings_that_a_sampler_lacks_are_named(sampler: str, name: str, value: float) -> None:
    with pytest.warns(UserWarning, match=f"{name}={value} changes nothing: sampler='{sampler}' has no such"):
        bf.ThermostatMCMC(sampler=sampler, **{name: value})  # type: ignore[arg-type]


def test_bad_options() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"sampler": "hmc"}, "sampler='hmc' does not exist"),
        ({"keep": "all"}, "keep='all' does not exist"),
        ({"draw_dtype": "int8"}, "draw_dtype='int8' does not exist"),
        ({"num_kept": 0}, "num_kept=0 must be a whole number of at least 1"),
        ({"num_kept": 2.5}, "num_kept=2.5 must be a whole number"),
        ({"burn_in": "half"}, "burn_in='half' must be a number"),
        ({"mass": -1.0}, "mass=-1.0 must be a number above 0"),
        ({"temperature": -1.0}, "temperature=-1.0 must be a number of at least 0"),
        ({"integrator": "leap"}, "integrator='leap' does not exist"),
        ({"burn_in": 2.5}, "burn_in=2.5 must be a whole number of steps, or a share below 1"),
        ({"every": 0}, "every=0 must be a whole number of at least 1"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            bf.ThermostatMCMC(**options)
    with pytest.raises(ValueError, match="num_data is missing"):
        bf.bayesify(make_net(), "atmc").optimizer()
