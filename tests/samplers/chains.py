"""Many independent chains at once: every coordinate of one parameter is a chain."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SIGMAS = 4.9  # two-sided normal tail of 1e-6
NUM_DATA = 10  # the gradient handed over is ∇U / NUM_DATA


class Average(NamedTuple):
    """A mean over chains and steps with its standard error, taken from the spread between chains."""

    mean: float
    error: float


class Averages(NamedTuple):
    square: Average  # θ²
    momentum_square: Average  # p²
    thermostat: Average  # ξ


def average(sums: Tensor, steps: int) -> Average:
    means = sums / steps  # (chains,): independent, so their spread gives the error of their mean
    return Average(means.mean().item(), means.std().item() / math.sqrt(len(means)))


def run(
    make: Callable[[list[nn.Parameter]], Any],
    gradient_noise: float = 0.0,
    chains: int = 2000,
    burn_in: int = 400,
    steps: int = 800,
    gradient: Callable[[Tensor], Tensor] = lambda theta: theta,
) -> Averages:
    """Chains for U with this gradient (default N(0, 1)) plus noise of rate B = h Var G."""
    theta = nn.Parameter(torch.randn(chains, generator=torch.Generator().manual_seed(1)))
    sampler = make([theta])
    generator = torch.Generator().manual_seed(2)
    scale = math.sqrt(gradient_noise / sampler.param_groups[0]["lr"])
    sums = torch.zeros(3, chains, dtype=torch.float64)
    for step in range(burn_in + steps):
        noise = scale * torch.randn(chains, generator=generator) if scale else 0.0
        theta.grad = (gradient(theta.detach()) + noise) / NUM_DATA
        sampler.step()
        if step >= burn_in:
            state = sampler.state[theta]
            sums[0] += theta.detach().square()
            sums[1] += state["momentum"].square() if "momentum" in state else 0.0
            sums[2] += state.get("thermostat", 0.0)
    return Averages(*(average(s, steps) for s in sums))


def assert_near(measured: Average, expected: float, bias: float = 0.0) -> None:
    """Within 4.9 standard errors (one failure in 10⁶) and the discretisation error allowed for."""
    assert abs(measured.mean - expected) < SIGMAS * measured.error + bias, (measured, expected)
