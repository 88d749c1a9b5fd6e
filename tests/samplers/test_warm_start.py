"""The first part of a burn-in brings a chain from any start into the posterior, and leaves it exact."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers import ATMC, SAMPLERS, Sampler
from bayesify.samplers.curvature import stiffness
from bayesify.samplers.warm_start import WarmStart

NUM, STD, CHAINS = 120, 0.1, 64
THERMOSTATS = ["atmc", "sgnht"]


def data(scales: tuple[float, float, float] = (1.0, 0.3, 0.05)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NUM, 3, generator=generator) * torch.tensor(scales)
    noise = STD * torch.randn(NUM, 1, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [3.0]]) + noise


def exact(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variances of the posterior of weights and bias, prior N(0, 1)."""
    design = torch.cat([x, torch.ones(len(x), 1)], 1).double()
    covariance = torch.linalg.inv(design.T @ design / STD**2 + torch.eye(4))
    return covariance @ design.T @ y.double().flatten() / STD**2, covariance.diag()


def regression(**options: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    method = bf.ThermostatMCMC(**options)
    return bf.bayesify(net, method, likelihood=bf.likelihood("normal", std=STD), num_data=NUM)


def loader(batch: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data()), batch_size=batch, shuffle=batch < NUM)


@pytest.mark.parametrize("batch", [NUM, 30])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_default_settings_draw_the_posterior_from_a_bad_start(sampler: str, batch: int) -> None:
    """Mean square about the exact mean over 64 chains ÷ exact variance, 2,000 steps, half burn-in.

    Condition 400; 10 for SGLD and pSGLD, which need some 1/k of it in steps. The chains are the rows of one layer.
    Within 0.8 to 1.25, or 4 standard errors of the spread between chains: 6e-5 for each of 40 numbers, 0.25 % in all;
    seeded. Samplers without thermostat are too wide by some 5 % by design.
    """
    x, y = data((1.0, 0.5, 0.3) if "sgld" in sampler else (1.0, 0.3, 0.05))
    torch.manual_seed(0)
    model = bf.bayesify(
        nn.Linear(3, CHAINS),
        bf.ThermostatMCMC(sampler=sampler, num_kept=250),
        likelihood=bf.likelihood("normal", std=STD),
        num_data=NUM,
    )
    batches = DataLoader(TensorDataset(x, y.expand(-1, CHAINS)), batch_size=batch, shuffle=batch < NUM)
    bf.fit(model, batches, epochs=2000 * batch // NUM, progress=False, seed=0, compile=False)
    draws = [torch.cat([w["weight"], w["bias"][:, None]], 1) for _, w in model.posterior.each()]  # type: ignore[operator]
    mean, variance = exact(x, y)
    squares = torch.stack(draws).double().sub(mean).square().mean(0) / variance  # (chains, coordinates)
    ratio, error = squares.mean(0), squares.std(0) / math.sqrt(CHAINS)
    fine = ((ratio > 0.8) & (ratio < 1.25)) | ((ratio - 1).abs() < 4 * error)
    assert fine.all(), (ratio, error)


def test_the_look_at_the_curvature_finds_the_largest_eigenvalue() -> None:
    """Of h² M^−½ H M^−½ for a quadratic, whose differences of gradients are exact."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    hessian = root @ root.T
    theta = nn.Parameter(torch.randn(6, generator=generator, dtype=torch.float64))
    sampler = ATMC([theta], lr=0.1, num_data=5)
    sampler.warm_up(400)
    assert sampler.warm is not None
    sampler.bucket([theta], sampler.param_groups[0])
    mass = torch.rand(6, generator=generator, dtype=torch.float64) + 0.5
    sampler.state[theta]["mass"].copy_(mass)
    before = theta.detach().clone()
    with torch.no_grad():
        found = stiffness(sampler, [theta], lambda ps: [hessian @ p / 5 for p in ps])
    scaled = mass.rsqrt()[:, None] * hessian * mass.rsqrt()
    assert found == pytest.approx(0.01 * torch.linalg.eigvalsh(scaled)[-1].item(), rel=0.05)
    assert torch.equal(theta, before)


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("start", [1e-3, 0.1])
def test_a_noise_level_is_learned_from_any_start(start: float, chains: int) -> None:
    """Errors of 3 at a noise level of 0.001 have a gradient of 1e7 per example: a step of it would be out of sight.
    One that falls from 3 to 0.1 in fifty steps makes the curvature 900 times as large, which masses have to follow.
    At the mode the mean square error is 0.0949², and a little more off it."""
    torch.manual_seed(0)
    noise = bf.likelihood("normal", std=start, learn_std=True)
    model = bf.bayesify(nn.Linear(3, 1), bf.ThermostatMCMC(), likelihood=noise, num_data=NUM)
    options: dict[str, Any] = {"progress": False, "compile": False, "on_bad_sampling": "ignore"}
    if chains == 1:
        bf.fit(model, loader(NUM), epochs=1500, seed=0, **options)
    else:
        bf.sample_chains(model, loader(NUM), num_chains=chains, epochs=1500, on_bad_sampling="ignore")
    assert model.likelihood.std.item() == pytest.approx(0.0949, rel=0.1)  # type: ignore[union-attr, operator]


def test_silent_units_keep_their_masses() -> None:
    """Nothing but the prior acts on the weights of a ReLU that is never on, and on those behind it; but that may
    change, and light weights would then diverge."""
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
    net[0].bias.data[:3] = -100.0
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood=bf.likelihood("normal", std=STD), num_data=NUM)
    made: list[Sampler] = []
    options: dict[str, Any] = {"progress": False, "seed": 0, "compile": False, "on_bad_sampling": "ignore"}
    bf.fit(model, loader(NUM), epochs=400, optimizer=lambda _: _kept(made, model.optimizer()), **options)
    floor = 0.4 * made[0].param_groups[0]["mass"]
    assert (net[0](data()[0])[:, :3] < 0).all()
    assert all((state["mass"] >= floor * 0.999).all() for state in made[0].state.values())


def _kept(into: list[Sampler], sampler: Any) -> Any:
    into.append(sampler)
    return sampler


def walk(sampler: Sampler, theta: nn.Parameter, steps: int) -> list[dict[str, float]]:
    seen = []
    for _ in range(steps):
        theta.grad = theta.detach() * 2.0
        group = sampler.now(sampler.param_groups[0])
        seen.append({name: group[name] for name in ("temperature", "thermostat_rate")})
        sampler.step()
    return seen


def test_the_phases() -> None:
    """T = 0 for three quarters, then T on with κ = 0, then the sampler as it was asked for, with masses that stay."""
    theta = nn.Parameter(torch.linspace(-3, 3, 50))
    sampler = ATMC([theta], lr=0.1, num_data=5, thermostat_rate=2.0, temperature=0.7)
    sampler.warm_up(160)
    assert sampler.warm is not None
    sampler.warm.turn(sampler, lambda ps: [2.0 * p.detach() for p in ps])
    seen = walk(sampler, theta, 80)
    assert {s["temperature"] for s in seen[:60]} == {0.0} and {s["temperature"] for s in seen[60:]} == {0.7}
    assert {s["thermostat_rate"] for s in seen[60:]} == {0.0}
    assert sampler.warm is not None and sampler.warm.phase(sampler.steps).startswith("sampling, masses")
    assert not sampler.state[theta]["thermostat"].any()
    walk(sampler, theta, 41)
    assert sampler.warm.phase(sampler.steps) == "sampling"
    mass = sampler.state[theta]["mass"].clone()
    assert walk(sampler, theta, 30) == [{"temperature": 0.7, "thermostat_rate": 2.0}] * 30
    assert torch.equal(mass, sampler.state[theta]["mass"])
    assert sampler.state[theta].keys() == {"momentum", "thermostat", "mass"}


def test_a_given_mass_stays() -> None:
    model = regression(mass=0.5, burn_in=200)
    sampler = model.optimizer(num_steps=400)
    x, y = data()
    for _ in range(120):
        sampler.zero_grad()
        model.loss(x, y).total.backward()
        sampler.step()
    assert all((state["mass"] == 0.5).all() for state in sampler.state.values())


def test_a_given_step_of_a_sampler_without_mass_stays() -> None:
    assert regression(sampler="sgld").optimizer(lr=1e-6, num_steps=400).warm is None  # type: ignore[attr-defined]
    assert regression(sampler="sgld").optimizer(num_steps=400).warm is not None  # type: ignore[attr-defined]
    assert regression(warm_start=False).optimizer(num_steps=400).warm is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampler", ["atmc", "sgnht", "sghmc"])
def test_a_loop_of_ones_own_does_not_diverge(sampler: str) -> None:
    """Without gradients of a batch nobody can see that masses are too light: they are heavier from the beginning."""
    torch.manual_seed(0)
    method = bf.ThermostatMCMC(sampler=sampler)
    x, y = data((12.0, 1.0, 1.0))
    model = bf.bayesify(
        nn.Linear(3, 1), method, likelihood=bf.likelihood("normal", std=STD * 10), num_data=NUM
    )
    made = model.optimizer(num_steps=2000, seed=0)
    for _ in range(2000):
        chosen = torch.randperm(NUM)[:60]
        made.zero_grad()
        model.loss(x[chosen], y[chosen]).total.backward()
        made.step()
    assert made.warm is not None and made.warm.blind  # type: ignore[attr-defined]
    assert len(model.posterior.store) == 20  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("batch", [100, 20])
def test_a_loop_over_classes_that_are_nearly_apart_goes_round(batch: int) -> None:
    """The curvature is that of the prior and a few examples, and no unit can fall silent: masses are far below those
    that networks keep. Mean square about the mean, by quadrature over both weights, within a factor of 2.5: 1,500
    steps are worth 10 to 100 independent ones, and 1.6 by masses of networks."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(100, 2, generator=generator)
    chance = torch.sigmoid(12 * x @ torch.tensor([[0.8], [-0.6]]))
    y = (torch.rand(100, 1, generator=generator) < chance).long()
    grid = torch.cartesian_prod(*[torch.linspace(-9, 9, 400)] * 2).double()
    logits = grid @ x.T.double()
    energy = (nn.functional.softplus(logits) - y.T * logits).sum(1) + grid.square().sum(1) / 2
    weight = (-energy).softmax(0)[:, None]
    mean = (weight * grid).sum(0)
    variance = (weight * (grid - mean).square()).sum(0)
    torch.manual_seed(0)
    method = bf.ThermostatMCMC(num_kept=500)
    model = bf.bayesify(nn.Linear(2, 1, bias=False), method, bf.likelihood("bernoulli"), num_data=100)
    made = model.optimizer(num_steps=3000, seed=0)
    for _ in range(3000):
        chosen = torch.randperm(100)[:batch]
        made.zero_grad()
        model.loss(x[chosen], y[chosen]).total.backward()
        made.step()
    draws = torch.cat([w["weight"] for _, w in model.posterior.each()]).double()  # type: ignore[operator]
    ratio = (draws - mean).square().mean(0) / variance
    assert ((ratio > 0.4) & (ratio < 2.5)).all(), ratio
    group = made.param_groups[0]
    assert (made.state[group["params"][0]]["mass"] < 0.4 * group["mass"]).all()


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")  # 60 steps are too few
def test_an_empty_parameter_is_no_obstacle() -> None:
    net = nn.Sequential(nn.Linear(3, 1), nn.Identity())
    net.register_parameter("none", nn.Parameter(torch.zeros(0)))
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood=bf.likelihood("normal", std=STD), num_data=NUM)
    history = bf.fit(model, loader(NUM), epochs=60, progress=False, seed=0)
    assert "those of the posterior" in history.notes[-1]


def test_a_finished_run_that_is_called_again_keeps_what_was_found(tmp_path: Path) -> None:
    with pytest.warns(bf.SamplingWarning, match="clip_norm shortened"):
        _clipped(tmp_path)
    _clipped(tmp_path)
    assert "clipped" in bf.load(tmp_path / "model.safetensors", nn.Linear(3, 1)).posterior.findings  # type: ignore[operator]


def _clipped(folder: Path) -> None:
    model = regression(burn_in=60, every=3)
    bf.fit(model, loader(NUM), epochs=150, folder=folder, progress=False, seed=0, clip_norm=1e-3)


def test_a_short_burn_in_has_none() -> None:
    assert regression(burn_in=20).optimizer(num_steps=60).warm is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("stop", [1, 27, 39, 50, 59])
def test_a_run_stopped_in_any_phase_resumes_bit_for_bit(sampler: str, stop: int, tmp_path: Path) -> None:
    """Warm start of 60 steps, one epoch each; it turns at 20, 30, 38, 39, 40, 58, 59, 60."""

    def run(epochs: int, folder: Path) -> Tensor:
        model = regression(sampler=sampler, burn_in=80, every=2)
        bf.fit(model, loader(NUM), epochs=epochs, folder=folder, progress=False, seed=0)
        return torch.cat([p.detach().flatten() for p in model.net.parameters()])

    whole = run(90, tmp_path / "whole")
    run(stop, tmp_path / "parts")
    assert torch.equal(run(90, tmp_path / "parts"), whole)


@pytest.mark.parametrize("sampler", THERMOSTATS)
def test_a_copy_goes_on_alike(sampler: str) -> None:
    theta = nn.Parameter(torch.linspace(-3, 3, 20))
    made = SAMPLERS[sampler]([theta], lr=0.1, num_data=5)
    made.warm_up(100)
    for steps in (28, 9, 2, 3):
        walk(made, theta, steps)
        other, copied = copy.deepcopy((theta, made))
        walk(made, theta, 20)
        walk(copied, other, 20)
        assert torch.equal(theta, other)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)),
        nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)),
    ],
    ids=["batch norm", "dropout"],
)
@pytest.mark.filterwarnings("ignore:batch norm")
@pytest.mark.parametrize(
    "options", [{}, {"cycle": 20}, {"max_speed": 30.0}, {"integrator": "strang"}], ids=str
)
def test_networks_warm_up_without_a_trace_of_the_looks(net: nn.Module, options: dict[str, Any]) -> None:
    """The looks move neither running statistics nor random numbers: a run with many is a run with few."""
    runs = []
    for iterations in (6, 1):
        torch.manual_seed(0)
        model = bf.bayesify(
            copy.deepcopy(net),
            bf.ThermostatMCMC(mass=0.2, burn_in=100, **options),
            likelihood=bf.likelihood("normal", std=STD),
            num_data=NUM,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bayesify.samplers.curvature.ITERATIONS", iterations)
            history = bf.fit(model, loader(40), epochs=60, progress=False, seed=0, on_bad_sampling="ignore")
        assert any("warm start" in note for note in history.notes)
        runs.append([*(p.detach() for p in model.net.parameters()), *model.net.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    assert all(t.isfinite().all() for t in runs[0])


def test_half_precision_weights() -> None:
    model = regression(burn_in=200).to(torch.bfloat16)
    x, y = data()
    half = TensorDataset(x.bfloat16(), y.bfloat16())
    options: dict[str, Any] = {"progress": False, "seed": 0, "compile": False, "on_bad_sampling": "ignore"}
    bf.fit(model, DataLoader(half, batch_size=30), epochs=80, **options)
    assert all(p.isfinite().all() for p in model.net.parameters())


def test_facts_survive_another_length() -> None:
    """A run that was lengthened goes on with the beginning it had."""
    warm = WarmStart(100)
    warm.start, warm.count = 7, 3
    other = WarmStart(999)
    other.take(warm.facts())
    assert other.facts() == warm.facts() and other.looking == warm.looking
