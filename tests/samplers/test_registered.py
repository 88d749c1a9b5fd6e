"""A sampler from outside the package is a class and a line: everything that takes a sampler takes it."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from cli_runs import read, start, succeed
from scipy.stats import chi2
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.checks import Positive
from bayesify.samplers import SAMPLERS, Sampler
from bayesify.samplers.base import Group, States
from bayesify.samplers.momentum import MomentumSampler

NUM = 40
FAILURES = 1e-6  # of each comparison
SIGMAS = 4.9  # the two-sided normal tail of that


class Langevin(Sampler):
    """θ ← θ − s h G + √(2 s h T) η.

    scale: s, above 0
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        scale: Positive = 1.0,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(params, num_data, seed, lr=lr, scale=scale, temperature=temperature)

    @classmethod
    def default_lr(cls, num_data: int, num_members: int = 1) -> float:
        return 0.01 / num_data

    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        h = group["scale"] * group["lr"]
        move = -h * gradient
        return move if noise is None else move + math.sqrt(2 * h * group["temperature"]) * noise


class Underdamped(MomentumSampler):
    """Kick, half a drift, friction, half a drift."""

    orders: ClassVar = {"fused": "BAOA", "strang": "BAOA"}
    states = ("momentum",)

    @staticmethod
    def injected(thermostat: Tensor | None, noise: Any) -> Any:
        """α = D."""
        return noise


class Passing(bf.samplers.ATMC):
    """Settings in ** are those of the parent."""

    def __init__(self, params: Any, lr: float, num_data: int, factor: float = 2.0, **settings: Any) -> None:
        super().__init__(params, factor * lr, num_data, **settings)


#: name, and what `bf.ThermostatMCMC` is told beside it
OWN: dict[str, dict[str, Any]] = {"langevin": {"settings": {"scale": 2.0}}, "underdamped": {"noise": 2.0}}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(bf.samplers.SAMPLERS, "langevin", Langevin)
    monkeypatch.setitem(bf.samplers.SAMPLERS, "underdamped", Underdamped)
    return


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NUM, 2, generator=generator)
    return x, x @ torch.tensor([[0.7], [-0.4]]) + torch.randn(NUM, 1, generator=generator)


def loader(batch: int = 8) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*regression()), batch)


def make(name: str, **options: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    method = bf.ThermostatMCMC(sampler=name, **{**OWN[name], "burn_in": 10, "every": 5, **options})
    return bf.bayesify(
        nn.Linear(2, 1, bias=False), method, likelihood=bf.likelihood("normal", std=1.0), num_data=NUM
    )


@pytest.mark.parametrize(
    ("name", "options", "lr"),
    [("langevin", {}, 1e-3), ("underdamped", {"mass": 40.0, "noise": 2.0}, 0.2)],
)
def test_it_recovers_a_gaussian_posterior(name: str, options: dict[str, Any], lr: float) -> None:
    """Full batches, noise and prior of std 1: the posterior is N(mean, Λ⁻¹), Λ = XᵀX + 1.

    Along an eigenvector of Λ with eigenvalue λ the Langevin chain has the variance 1/λ / (1 − s h λ / 2), the other
    1/λ, both exactly. 500 chains × 4 draws, 100 steps apart, in which a chain forgets all but e⁻⁵ of where it was:
    2000 draws that are independent within 1 %. Standardised, their mean is N(0, 1/2000) and the sum of their squares
    χ² with 2000 degrees of freedom: at a failure rate of 1e-6 a mean is below 0.11 and a variance within 16 % of 1.
    """
    x, y = regression()
    model = make(name, burn_in=200, every=100, **options)
    bf.sample_chains(model, loader(NUM), num_chains=500, epochs=600, lr=lr)
    draws = torch.stack([w["weight"][0] for _, w in model.posterior.each()]).double()  # (draws, 2)
    precision = (x.T @ x + torch.eye(2)).double()
    curvature, directions = torch.linalg.eigh(precision)
    variance = 1 / curvature
    if name == "langevin":
        variance /= 1 - lr * OWN[name]["settings"]["scale"] * curvature / 2
    mean = torch.linalg.solve(precision, (x.T @ y)[:, 0].double())
    z = (draws - mean) @ directions / variance.sqrt()
    count = len(z)
    assert count == 2000
    assert z.mean(0).abs().max() < SIGMAS / math.sqrt(count)
    low, high = (float(chi2.ppf(p, count)) for p in (FAILURES / 2, 1 - FAILURES / 2))
    assert all(low < value < high for value in z.square().sum(0).tolist())
    assert (z[:, 0] * z[:, 1]).mean().abs() < SIGMAS / math.sqrt(count)


def test_its_settings_are_those_of_its_signature() -> None:
    model = make("langevin", temperature=0.5)
    group = model.optimizer(num_steps=None).param_groups[0]
    assert (group["scale"], group["temperature"], group["lr"]) == (2.0, 0.5, 0.01 / NUM)
    assert make("langevin", settings=None).optimizer(num_steps=None).param_groups[0]["scale"] == 1.0
    group = make("underdamped").optimizer(num_steps=None).param_groups[0]
    assert (group["noise"], group["lr"]) == (2.0, 1e-3)
    assert group["mass"] == pytest.approx(1e-6 / (4 * 0.0045) * NUM)
    assert Sampler.settings(1e-3, NUM) == {"temperature": 1.0}
    assert Passing.settings(1e-3, NUM) == {**bf.samplers.ATMC.settings(1e-3, NUM), "factor": 2.0}
    psgld = bf.ThermostatMCMC(sampler="psgld", settings={"decay": 0.9})
    assert psgld.sampler_settings(1e-3, NUM)["decay"] == 0.9


def test_settings_that_it_lacks_are_refused() -> None:
    with pytest.warns(
        UserWarning, match=r"mass=2\.0 changes nothing: sampler='langevin' has no such setting"
    ):
        bf.ThermostatMCMC(sampler="langevin", mass=2.0)
    with pytest.warns(UserWarning, match="thermostat_rate=2.0 changes nothing: sampler='underdamped'"):
        bf.ThermostatMCMC(sampler="underdamped", thermostat_rate=2.0)
    with pytest.raises(
        ValueError, match=r"sampler='langevin': setting='scal' does not exist; .* mean 'scale'"
    ):
        bf.ThermostatMCMC(sampler="langevin", settings={"scal": 2.0})
    with pytest.raises(ValueError, match="setting='mass' does not exist"):
        bf.ThermostatMCMC(sampler="atmc", settings={"mass": 2.0})  # it has a name of its own there
    with pytest.raises(ValueError, match="scale=0 must be a number above 0"):
        bf.ThermostatMCMC(sampler="langevin", settings={"scale": 0})
    with pytest.raises(ValueError, match="lr=0.0 must be a number above 0"):
        make("underdamped").optimizer(lr=0.0)


@pytest.mark.parametrize("name", OWN)
def test_fit_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    """Two epochs and then two more are four, bit for bit."""
    options = {"seed": 0, "progress": False, "accelerator": "cpu"}
    whole = make(name)
    bf.fit(whole, loader(), epochs=4, folder=tmp_path / "whole", **options)
    bf.fit(make(name), loader(), epochs=2, folder=tmp_path / "halves", **options)
    resumed = make(name)
    bf.fit(resumed, loader(), epochs=4, folder=tmp_path / "halves", **options)
    before, after = ([w["weight"] for _, w in m.posterior.each()] for m in (whole, resumed))
    assert len(before) == 2 and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(whole.net.weight, resumed.net.weight)


@pytest.mark.parametrize("name", OWN)
def test_it_is_stored_with_its_settings(name: str, tmp_path: Path) -> None:
    model = make(name)
    bf.fit(model, loader(), epochs=4, progress=False, accelerator="cpu")
    bf.save(model, tmp_path / "model.safetensors")
    again = bf.load(tmp_path / "model.safetensors", nn.Linear(2, 1, bias=False))
    x, _ = regression()
    assert torch.equal(again.predict(x).mean, model.predict(x).mean)
    assert again.method.options() == model.method.options()
    assert type(again.optimizer(num_steps=None)) is SAMPLERS[name]
    del SAMPLERS[name]  # of a program that did not register it
    with pytest.raises(ValueError, match=f"sampler='{name}' does not exist; choose from atmc, "):
        bf.load(tmp_path / "model.safetensors", nn.Linear(2, 1, bias=False))


def test_the_diagnostics_know_what_it_has() -> None:
    """A step size for the one, a mass for the other; temperatures of both."""
    x, y = regression()
    curvature = torch.linalg.eigvalsh(x.T @ x / NUM)[-1].item() + 1 / NUM
    step = bf.diagnostics.suggest(make("langevin"), x, y)
    assert step.lr == pytest.approx(2 * 0.05 / (NUM * curvature), rel=0.01)
    assert step.mass is None and "langevin has no mass" in str(step)
    with pytest.raises(ValueError, match="tune.* finds a mass, and sampler='langevin' has none: .*suggest"):
        bf.diagnostics.tune(make("langevin"), loader())
    found = bf.diagnostics.suggest(make("underdamped"), x, y, lr=0.01)
    assert found.mass == pytest.approx(NUM * curvature * 1e-4 / 0.09, rel=0.01)
    tuned = bf.diagnostics.tune(make("underdamped"), loader(NUM), lr=0.01, num_steps=20)
    assert tuned.mass == pytest.approx(found.mass, rel=0.01)
    for name in OWN:
        model = make(name, mass=None if name == "langevin" else tuned.mass)
        sampler = model.optimizer(lr=step.lr if name == "langevin" else 0.01, num_steps=None)
        monitor = bf.diagnostics.Monitor(sampler, model)
        for _ in range(100):
            sampler.zero_grad()
            model.loss(x, y).total.backward()
            sampler.step()
        (row,) = monitor.rows()
        assert math.isnan(row.kinetic) == (name == "langevin") and math.isnan(row.thermostat)
        assert "config. T" in str(monitor)


@pytest.mark.parametrize("name", OWN)
def test_the_command_line(name: str, tmp_path: Path) -> None:
    """`--set method.sampler=NAME`; its own settings are method.settings.OPTION."""
    setting = ("settings.scale", 2.0) if name == "langevin" else ("noise", 2.0)
    run = ("train", "--method", "atmc", "--net", "mlp", "--data", "diabetes", "--folder", tmp_path / "run")
    succeed(
        *run, "--set", f"method.sampler={name}", "--set", f"method.{setting[0]}={setting[1]}", "--epochs", 1
    )
    succeed(*run, "--resume", "--epochs", 2)
    table = read(tmp_path / "run")["method"]
    assert table["sampler"] == name
    assert table["settings"] == OWN[name].get("settings") and table["noise"] == OWN[name].get("noise")
    succeed("evaluate", tmp_path / "run")
    assert "rmse" in read(tmp_path / "run", "summary.json")["test"]
    assert name in succeed("show", "samplers").output
    assert next(iter(SAMPLERS[name].settings(1e-3, 1))) in succeed("show", "samplers", name).output


def test_the_command_line_in_a_process_of_its_own(tmp_path: Path) -> None:
    """There a network of one's own, --net module:factory, brings the sampler along."""
    (tmp_path / "mine.py").write_text(MODULE)
    run = ("--method", "atmc", "--net", "mine:net", "--data", "diabetes", "--set", "method.sampler=mine")
    for arguments in (("train", *run, "--folder", "run", "--epochs", 1), ("evaluate", "run", "--trust")):
        _, errors = (process := start(*arguments, cwd=tmp_path)).communicate(timeout=200)
        assert process.returncode == 0, errors
    assert read(tmp_path / "run")["method"]["sampler"] == "mine"


MODULE = """
import bayesify as bf
from torch import nn

class Mine(bf.samplers.SGLD):
    pass

bf.samplers.SAMPLERS["mine"] = Mine

def net(num_outputs, input_shape):
    return nn.Linear(input_shape[0], num_outputs)
"""


def test_a_step_of_ones_own_is_not_left_to_the_kernel() -> None:
    """The Triton kernel knows the orders and noises of the package's samplers only."""

    class Hotter(bf.samplers.ATMC):
        @staticmethod
        def injected(thermostat: Tensor | None, noise: Any) -> Any:
            return 2 * noise

    class Renamed(bf.samplers.ATMC):
        pass

    kinds = [bf.samplers.ATMC, bf.samplers.SGHMC, Renamed, Hotter, Underdamped]
    assert [kind.kernel for kind in kinds] == ["adaptive", "constant", "adaptive", None, None]
