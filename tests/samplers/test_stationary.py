"""Every sampler has the stationary distribution it should have: the tables of FORMULAS part 4.

Each case: 2000 chains, 800 kept steps of h = 0.05 (40 units of time). Tolerance: 4.9 standard errors, taken
from the spread between chains (failure rate 1e-6 each), plus a bound on the discretisation error.
"""

import math
from typing import Any

import pytest
import torch
from chains import NUM_DATA, assert_near, run
from scipy.special import kv
from torch import nn

from bayesify.samplers import ATMC, PSGLD, SAMPLERS, SGHMC, SGLD, SGNHT

H = 0.05
THERMOSTATS = {"sgnht": SGNHT, "atmc": ATMC}
BIAS = 0.006  # of a second-order integrator at h = 0.05


@pytest.mark.parametrize("gradient_noise", [0.0, 1.0, 4.0])
def test_sgld_is_too_hot_by_the_known_amount(gradient_noise: float) -> None:
    """θ' = (1 − h) θ + noise of variance 2h + hB: variance (2 + B) / (2 − h)."""
    found = run(lambda p: SGLD(p, lr=H, num_data=NUM_DATA), gradient_noise)
    assert_near(found.square, (2 + gradient_noise) / (2 - H))


@pytest.mark.parametrize("gradient_noise", [0.0, 1.0, 4.0])
def test_sghmc_is_too_hot_by_the_known_amount(gradient_noise: float) -> None:
    """Noise 2Dm + B against friction D: temperature 1 + B / 2Dm."""
    found = run(lambda p: SGHMC(p, lr=H, num_data=NUM_DATA, noise=1.0), gradient_noise)
    expected = 1 + gradient_noise / 2
    assert_near(found.square, expected, BIAS * expected)
    assert_near(found.momentum_square, expected, BIAS * expected)


@pytest.mark.parametrize("integrator", ["fused", "strang"])
@pytest.mark.parametrize("gradient_noise", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("name", THERMOSTATS)
def test_thermostats_take_gradient_noise_away(name: str, gradient_noise: float, integrator: str) -> None:
    """Variance 1 whatever B is, and E ξ = B / 2m."""
    make = THERMOSTATS[name]
    found = run(lambda p: make(p, lr=H, num_data=NUM_DATA, noise=1.0, integrator=integrator), gradient_noise)
    assert_near(found.square, 1.0, BIAS)
    assert_near(found.thermostat, gradient_noise / 2, 0.01 + BIAS * gradient_noise)


@pytest.mark.parametrize("gradient_noise", [0.0, 4.0])
@pytest.mark.parametrize("name", THERMOSTATS)
def test_thermostat_at_another_mass(name: str, gradient_noise: float) -> None:
    """m = 4. Noise without √m would leave the variance right and only show here: E ξ = D(1 − m) + B/2 for
    ATMC, D(1/m − 1) + B/2m for SGNHT."""
    make = THERMOSTATS[name]
    settings = {"mass": 4.0, "noise": 1.0, "lr": 2 * H}  # the frequency is 1/√m
    found = run(lambda p: make(p, num_data=NUM_DATA, **settings), gradient_noise)
    assert_near(found.thermostat, gradient_noise / 8, 0.01)
    assert_near(found.momentum_square, 4.0, 0.03)
    assert_near(found.square, 1.0, 2 * BIAS)


@pytest.mark.parametrize("max_speed", [1.0, 3.33])
@pytest.mark.parametrize("name", ["sghmc", *THERMOSTATS])
def test_hyperbolic_momentum(name: str, max_speed: float) -> None:
    """E p² = m K₂(mc²) / K₁(mc²). Friction without 1/w gives 2.01 at c = 1; the thermostat p²/m − 1 gives
    1 and a variance of 0.58 at c = 1, 0.90 at c = 3.33."""
    make = SAMPLERS[name]
    noise = 0.0 if name == "sghmc" else 1.0
    found = run(
        lambda p: make(p, lr=H, num_data=NUM_DATA, noise=1.0, max_speed=max_speed),  # type: ignore[call-arg]
        noise,
    )
    expected = float(kv(2, max_speed**2) / kv(1, max_speed**2))
    assert_near(found.momentum_square, expected, 0.02 * expected)
    assert_near(found.square, 1.0, 0.012)


@pytest.mark.parametrize("rate", [0.1, 10.0])
def test_thermostat_rate_leaves_the_target_as_it_is(rate: float) -> None:
    settings = {"lr": H, "num_data": NUM_DATA, "noise": 1.0, "thermostat_rate": rate}
    found = run(lambda p: ATMC(p, **settings), 1.0, burn_in=1000)  # type: ignore[arg-type]
    assert_near(found.square, 1.0, 0.012)
    assert_near(found.thermostat, 0.5, 0.02)


@pytest.mark.parametrize("name", ["sghmc", *THERMOSTATS])
def test_temperature(name: str) -> None:
    """At T all energies are divided by T: E θ² = T, E p² = m T, E ξ = B / 2mT."""
    gradient_noise = 0.0 if name == "sghmc" else 0.25
    found = run(
        lambda p: SAMPLERS[name](p, lr=H, num_data=NUM_DATA, noise=1.0, temperature=0.25),  # type: ignore[call-arg]
        gradient_noise,
        burn_in=800,
    )
    assert_near(found.square, 0.25, 0.25 * BIAS)
    assert_near(found.momentum_square, 0.25, 0.25 * BIAS)
    assert_near(found.thermostat, gradient_noise / 0.5, 0.01)


@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgnht", "atmc"])
def test_groups_at_temperatures_of_their_own(name: str) -> None:
    """U = 2 θ², so the variance is T/4, each group with its temperature, step and mass; SGLD's is 1 / (1 − 2h) of it.

    20,000 coordinates that start there: one look at a variance is off by √(2/20,000) = 1 %, five of them are 5 %; the
    momentum samplers' own error, λ h² / 4m, is below 0.6 %.
    """
    torch.manual_seed(0)
    temperatures = (0.25, 2.0)
    thetas = [nn.Parameter(torch.randn(20_000) * math.sqrt(t / 4)) for t in temperatures]
    groups: list[dict[str, Any]] = [
        {"params": [p], "temperature": t} for p, t in zip(thetas, temperatures, strict=True)
    ]
    if name != "sgld":
        groups[0] |= {"noise": 1.0}
        groups[1] |= {"mass": 2.0, "noise": 3.0, "lr": 0.1}
    sampler = SAMPLERS[name](groups, lr=0.02 if name == "sgld" else 0.05, num_data=7)
    for _ in range(200):
        for theta in thetas:
            theta.grad = 4 * theta.detach() / 7
        sampler.step()
    for theta, temperature in zip(thetas, temperatures, strict=True):
        expected = temperature / 4 / (0.96 if name == "sgld" else 1)
        assert theta.var().item() == pytest.approx(expected, rel=0.05)


def test_psgld_recovers_a_gaussian_up_to_its_missing_drift() -> None:
    """P follows the gradient's own size, so the stationary density is that of U plus a term of order
    1 − decay: with decay 0.999 less than 4 %."""
    settings = {"lr": 0.005, "num_data": NUM_DATA, "decay": 0.999}
    found = run(lambda p: PSGLD(p, **settings), burn_in=1500, steps=2500, chains=1000)  # type: ignore[arg-type]
    assert_near(found.square, 1.0, 0.04)


def test_the_regimes_of_the_adaptive_thermostat() -> None:
    """One step from ξ < 0, 0 < ξ < D and ξ > D: noise max(D − ξ, 0), friction max(D, ξ)."""
    d, h, m = 2.0, 0.1, 3.0
    xi = torch.tensor([-1.0, 0.5, 5.0])
    theta = nn.Parameter(torch.zeros(3))
    sampler = ATMC([theta], lr=h, num_data=1, mass=m, noise=d)
    theta.grad = torch.zeros(3)
    sampler.step(noise=[torch.zeros(3)])
    state = sampler.state[theta]
    state["momentum"].fill_(1.0)
    state["thermostat"].copy_(xi)
    eta = torch.tensor([0.3, -0.4, 0.7])
    sampler.step(noise=[eta])
    alpha, beta = torch.tensor([3.0, 1.5, 0.0]), torch.tensor([2.0, 2.0, 5.0])
    spread = (alpha * m * (1 - torch.exp(-2 * beta * h)) / beta).sqrt()
    expected = torch.exp(-beta * h) + spread * eta
    torch.testing.assert_close(state["momentum"], expected)
    torch.testing.assert_close(state["thermostat"], xi + h * (expected.square() / m - 1))


def test_vanishing_and_negative_friction_of_sgnht() -> None:
    """β = D + ξ = 0: p ← p − h G + √(2 D m h) η, no 0 / 0. β < 0 speeds up."""
    theta = nn.Parameter(torch.zeros(2))
    sampler = SGNHT([theta], lr=0.1, num_data=1, noise=1.0)
    theta.grad = torch.zeros(2)
    sampler.step(noise=[torch.zeros(2)])
    state = sampler.state[theta]
    state["momentum"].fill_(1.0)
    state["thermostat"].copy_(torch.tensor([-1.0, -3.0]))
    theta.grad = torch.ones(2)
    sampler.step(noise=[torch.ones(2)])
    assert state["momentum"][0].item() == pytest.approx(1 - 0.1 + 0.2**0.5, rel=1e-5)
    assert state["momentum"][1].item() > 1.2 - 0.12
