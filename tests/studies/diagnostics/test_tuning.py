"""Suggested settings, where curvature and gradient noise are known."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.samplers import ATMC
from bayesify.studies.diagnostics import Suggestion, suggest, tune

SCALES = torch.tensor([3.0, 1.0, 0.5])
NUM = 400


def regression(noise: float, **options: Any) -> tuple[bf.BayesianModule, Tensor, Tensor]:
    """y = x w + noise with unit noise in the model, at the least-squares solution."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NUM, 3, generator=generator) * SCALES
    y = x @ torch.ones(3, 1) + noise * torch.randn(NUM, 1, generator=generator)
    net = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    model = bf.bayesify(
        net, bf.ThermostatMCMC(**options), likelihood=bf.likelihood("normal", std=1.0), num_data=NUM
    )
    return model, x, y


def test_suggested_mass_from_a_known_curvature() -> None:
    """Linear regression with unit noise: λ̄ of the mean loss is the largest eigenvalue of XᵀX/n + 1/num_data."""
    torch.manual_seed(0)
    net = nn.Linear(3, 1, bias=False)
    x = torch.randn(200, 3) * SCALES
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood=bf.likelihood("normal", std=1.0), num_data=200)
    found = suggest(model, x, torch.randn(200, 1), lr=0.01)
    curvature = torch.linalg.eigvalsh(x.T @ x / 200)[-1].item() + 1 / 200
    assert found.mass == pytest.approx(200 * curvature * 1e-4 / 0.09, rel=0.01)
    assert "√(num_data" in str(found)
    model.num_data = None
    with pytest.raises(ValueError, match="num_data is missing"):
        suggest(model, x, torch.randn(200, 1))


def test_a_sampler_without_a_thermostat_gets_no_rate() -> None:
    model, x, y = regression(noise=1.0, sampler="sghmc")
    for found in (suggest(model, x, y), tune(model, [(x, y)], num_steps=20)):
        assert found.thermostat_rate is None and "thermostat_rate:" not in str(found)
        bf.ThermostatMCMC(sampler="sghmc", mass=found.mass, thermostat_rate=found.thermostat_rate)


@pytest.mark.parametrize("batch", [NUM, 40])
@pytest.mark.parametrize("sampler", ["sgld", "psgld"])
def test_samplers_without_a_mass_get_a_step_size(sampler: str, batch: int) -> None:
    """k N / 2b = 5 %, where k = h λ, times P = √(b / λ̄) for psgld; λ̄ is known of a linear regression."""
    model, x, y = regression(noise=1.0, sampler=sampler)
    found = suggest(model, x[:batch], y[:batch])
    curvature = torch.linalg.eigvalsh(x[:batch].T @ x[:batch] / batch)[-1].item() + 1 / NUM
    scale = math.sqrt(batch / curvature) if sampler == "psgld" else 1.0
    assert found.lr * scale * NUM * curvature * NUM / (2 * batch) == pytest.approx(0.05, rel=0.01)
    assert found.mass is None and found.noise is None and found.thermostat_rate is None
    assert f"lr: {sampler} has no mass" in str(found) and "mass=" not in str(found)
    assert "the lr given, 0.001, has k = " in str(found) and "far too large" in str(found)
    bf.ThermostatMCMC(sampler=sampler, mass=found.mass, noise=found.noise)
    with pytest.raises(ValueError, match=f"sampler='{sampler}' has none: .*suggest"):
        tune(model, [(x, y)])


def test_a_short_run_with_little_gradient_noise_takes_the_curvature() -> None:
    """λ̄ of a quadratic does not change: the largest eigenvalue of XᵀX/n + 1/n."""
    model, x, y = regression(noise=0.01)
    before = model.net.weight.detach().clone()
    found = tune(model, [(x, y)], lr=0.01, num_steps=50)
    curvature = torch.linalg.eigvalsh(x.T @ x / NUM)[-1].item() + 1 / NUM
    assert found.mass == pytest.approx(NUM * curvature * 1e-4 / 0.09, rel=0.01)
    assert found.noise == pytest.approx(-math.log(0.9) / 0.01)
    assert torch.equal(model.net.weight, before)
    assert model.posterior.num_draws == 0 and model.net.weight.grad is None
    assert f"before and {found.mass:.3g} after 50 steps" in str(found)


def test_a_short_run_with_much_gradient_noise_takes_the_mass_from_it() -> None:
    """½ E (G − G')² of disjoint batches of b is N² S² / b, S² the variance of the examples' gradients x (x w − y).

    400 pairs of three coordinates: a variance of 1200 values that are not normal (kurtosis below 9) is off by
    √(8/1200) = 8 % or less; three of that. Weights move by 1/√N of the noise, which is small beside it.
    """
    model, x, y = regression(noise=20.0)
    loader = Loader(Split(x, y), 4, shuffle=True)
    found = tune(model, loader, lr=0.01, num_steps=400)
    gradients = x * (x @ model.net.weight.detach().T - y)
    variance = (NUM**2 * gradients.var(0) / 4).mean().item()
    assert found.mass == pytest.approx(1e-4 * variance / (2 * -math.log(0.9)), rel=0.25)
    assert "weight is the noisiest" in str(found)


def test_a_largest_speed_where_some_weights_are_thrown() -> None:
    """Far from the solution the gradient moves weights much more than the temperature does."""
    model, x, y = regression(noise=1.0)
    quiet = tune(model, [(x, y)], lr=0.01, num_steps=20)
    assert quiet.max_speed is None
    with torch.no_grad():
        model.net.weight += 100
    found = tune(model, [(x, y)], lr=0.01, num_steps=20)
    assert found.max_speed == pytest.approx(10 / 3 / math.sqrt(found.mass))
    assert "times their thermal step" in str(found)
    assert f"max_speed={found.max_speed:.4g}" in str(found)


@pytest.mark.parametrize("speed", [None, 2.0])
def test_only_the_square_of_the_step_over_the_mass_matters(speed: float | None) -> None:
    """h → 4h, m → 16m, D → D/4, κ → κ/16, c → c/4: powers of two, so the chains are equal but for roundings of h D."""
    chains = []
    for a in (1.0, 4.0):
        model, x, y = regression(noise=1.0)
        found = suggest(model, x, y, lr=0.01 * a)
        sampler = ATMC(
            model.net.parameters(),
            lr=found.lr,
            num_data=NUM,
            mass=found.mass,
            noise=found.noise,
            thermostat_rate=found.thermostat_rate,
            max_speed=None if speed is None else speed / math.sqrt(found.mass),
        )
        for _ in range(50):
            sampler.zero_grad()
            model.loss(x, y).total.backward()
            sampler.step()
        chains.append(model.net.weight.detach() - regression(noise=1.0)[0].net.weight.detach())
        assert f"only lr² / mass = {found.lr**2 / found.mass:.3g} matters" in str(found)
        assert "only lr² / mass" in str(tune(model, [(x, y)], lr=0.01 * a, num_steps=2))
    torch.testing.assert_close(chains[0], chains[1], rtol=1e-3, atol=1e-5)
    assert chains[0].abs().max() > 0.01


def test_bad_input() -> None:
    model, x, y = regression(noise=1.0)
    with pytest.raises(ValueError, match="num_steps=1 must be at least 2"):
        tune(model, [(x, y)], num_steps=1)
    for lr in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"lr={lr} must be a number above 0"):
            suggest(model, x, y, lr=lr)
    frozen = bf.bayesify(
        nn.Linear(3, 1), bf.ThermostatMCMC(temperature=0.0), bf.likelihood("normal", std=1.0), num_data=len(y)
    )
    with pytest.raises(ValueError, match="at temperature=0 there is none"):
        tune(frozen, [(x, y)])
    with pytest.raises(ValueError, match="the loader is empty"):
        tune(model, [])
    point = bf.bayesify(nn.Linear(3, 1), bf.Point(), likelihood=bf.likelihood("normal", std=1.0))
    with pytest.raises(TypeError, match="point is no sampling method"):
        tune(point, [(x, y)])


def test_a_run_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mass far too small, and no thermostat to stop it."""
    model, x, y = regression(noise=1.0)
    light = Suggestion(0.01, 1e-4, 10.0, 0.0, ())
    monkeypatch.setattr("bayesify.studies.diagnostics.tuning.suggest", lambda *_, **__: light)
    with pytest.raises(RuntimeError, match="the short run has diverged after .* Train the network first"):
        tune(model, [(x, y)], num_steps=400, lr=0.01)
