"""The integrators have the order they should have, and Gaussian potentials the variance linear algebra says."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesify.samplers import ATMC, PSGLD, SGHMC, SGLD
from bayesify.samplers.kinetic import Gaussian
from bayesify.samplers.splitting import Phase, advance

FRICTION, MASS, TIME = 0.7, 1.5, 2.0


def final_position(integrator: str, steps: int, anharmonic: bool) -> float:
    """θ(TIME) of a damped oscillator without noise, started at θ = 1, p = 0.

    The first kick is a whole one: it is the second half of the step before. So the momentum is set back by
    half a step of the momentum operator.
    """
    h = TIME / steps
    theta = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def gradient() -> Tensor:
        x = theta.detach()
        return x + (x**3 if anharmonic else 0)

    sampler = SGHMC(
        [theta], lr=h, num_data=1, mass=MASS, noise=FRICTION, temperature=0.0, integrator=integrator
    )
    theta.grad = torch.zeros_like(theta)
    sampler.step()  # makes the state; nothing moves
    kick = h / 2 if integrator == "strang" else math.expm1(FRICTION * h / 2) / FRICTION
    sampler.state[theta]["momentum"].copy_(kick * gradient())
    for _ in range(steps):
        theta.grad = gradient()
        sampler.step()
    return theta.item()


@pytest.mark.parametrize("anharmonic", [False, True])
@pytest.mark.parametrize("integrator", ["fused", "strang"])
def test_second_order(integrator: str, anharmonic: bool) -> None:
    """Richardson: halving the step divides the difference between two step sizes by 4."""
    values = [final_position(integrator, steps, anharmonic) for steps in (40, 80, 160, 320)]
    differences = [abs(a - b) for a, b in pairwise(values)]
    slopes = [math.log2(a / b) for a, b in pairwise(differences)]
    assert slopes == pytest.approx([2, 2], abs=0.06)


def test_the_harmonic_oscillator_is_solved() -> None:
    gamma, omega2 = FRICTION / 2, 1 / MASS
    omega = math.sqrt(omega2 - gamma**2)
    exact = math.exp(-gamma * TIME) * (math.cos(omega * TIME) + gamma / omega * math.sin(omega * TIME))
    assert final_position("fused", 640, False) == pytest.approx(exact, abs=2e-6)
    assert final_position("strang", 640, False) == pytest.approx(exact, abs=2e-6)


def stationary_variance(integrator: str, h: float) -> tuple[float, float]:
    """(Var θ, Var p) of SGHMC on N(0, 1): the fixed point of S ← M S Mᵀ + n nᵀ, M and n read off the sampler."""
    columns = []
    for theta0, p0, eta in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)):
        theta = nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
        sampler = SGHMC([theta], lr=h, num_data=1, noise=1.0, integrator=integrator)
        theta.grad = torch.zeros_like(theta)
        sampler.step(noise=[torch.zeros(1)])
        sampler.state[theta]["momentum"].fill_(p0)
        with torch.no_grad():
            theta.fill_(theta0)
        theta.grad = theta.detach().clone()
        sampler.step(noise=[torch.full((1,), eta)])
        columns.append([theta.item(), sampler.state[theta]["momentum"].item()])
    matrix = torch.tensor(columns[:2], dtype=torch.float64).T
    noise = torch.tensor([columns[2]], dtype=torch.float64).T
    covariance = torch.zeros(2, 2, dtype=torch.float64)
    for _ in range(20_000):
        covariance = matrix @ covariance @ matrix.T + noise @ noise.T
    return covariance[0, 0].item(), covariance[1, 1].item()


@pytest.mark.parametrize("integrator", ["fused", "strang"])
def test_the_variance_is_right_to_second_order(integrator: str) -> None:
    errors = [abs(stationary_variance(integrator, h)[0] - 1) for h in (0.1, 0.05)]
    assert errors[0] < 4e-3  # h²/3 for the fused form
    if errors[1] > 1e-10:  # BAOAB has none at all for a harmonic potential
        assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)
    else:
        assert integrator == "strang"


def test_a_large_step_is_read_as_gradient_noise() -> None:
    """√(λ/m) h = 1 without any noise: the thermostat settles near 1.8, far from B / 2m = 0 (±0.4)."""
    theta = nn.Parameter(torch.randn(4000))
    sampler = ATMC([theta], lr=1.0, num_data=1, noise=1.0)
    total = 0.0
    for step in range(1500):
        theta.grad = theta.detach().clone()
        sampler.step()
        total += sampler.state[theta]["thermostat"].mean().item() / 1000 if step >= 500 else 0.0
    assert total == pytest.approx(1.78, abs=0.4)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("cls", [SGLD, PSGLD])
def test_langevin_dynamics_is_an_order_of_the_operators(cls: Any, temperature: float) -> None:
    """ "OBAB" with steps of √(2h) and a friction that leaves nothing of the momentum; the second kick is not seen.

    The mass is 1, of pSGLD 1 / P: at the first step P = 1 / (ε + |ḡ|). float64, a dozen roundings.
    """
    h, num_data = 0.03, 5
    generator = torch.Generator().manual_seed(0)
    start, gradient, noise = torch.randn(3, 50, generator=generator, dtype=torch.float64)
    theta = nn.Parameter(start.clone())
    theta.grad = gradient / num_data
    cls([theta], lr=h, num_data=num_data, temperature=temperature).step(noise=[noise])
    z = Phase(
        momentum=torch.zeros_like(start),
        thermostat=None,
        gradient=gradient,
        noise=noise,
        h=math.sqrt(2 * h),
        mass=1.0 if cls is SGLD else 1e-5 + (gradient / num_data).abs(),
        temperature=temperature,
        rate=0.0,
        kinetic=Gaussian(),
        injected=lambda thermostat: torch.full_like(start, 1e30),
    )
    (move,) = advance(z, "OBAB").moves
    torch.testing.assert_close(theta.detach(), start + move, rtol=1e-14, atol=1e-14)
