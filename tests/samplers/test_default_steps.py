"""Samplers without a thermostat draw the right width with the step size they take by themselves.

Every output of a linear network with one input is a chain with a posterior of its own, N(mean, 1/λ), λ = Σx² + 1.
"""

import math

import pytest
import torch
from chains import Average, assert_near, average
from torch import nn

import bayesify as bf
from bayesify.methods import Method

NUM, CHAINS, BURN_IN, STEPS = 64, 600, 1200, 2000


def measured(sampler: str, batch: int) -> tuple[Average, float, float]:
    """The variance in units of the posterior's; the step size; λ."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NUM, 1, generator=generator)
    y = torch.randn(NUM, CHAINS, generator=generator)
    model = bf.bayesify(
        nn.Linear(1, CHAINS, bias=False),
        bf.ThermostatMCMC(sampler=sampler),
        likelihood=bf.likelihood("normal", std=1.0),
        num_data=NUM,
    )
    curvature = x.square().sum().item() + 1
    mean = (y.T @ x) / curvature  # (chains, 1)
    start = torch.randn(CHAINS, 1, generator=generator) / math.sqrt(curvature)
    with torch.no_grad():
        model.net.weight.copy_(mean + start)
    optimizer = model.optimizer(seed=0, num_steps=None)
    sums = torch.zeros(CHAINS, 1, dtype=torch.float64)
    for step in range(BURN_IN + STEPS):
        chosen = torch.randperm(NUM, generator=generator)[:batch]
        optimizer.zero_grad()
        model.loss(x[chosen], y[chosen]).total.backward()
        optimizer.step()
        if step >= BURN_IN:
            sums += curvature * (model.net.weight.detach() - mean).square()
    return average(sums, STEPS), optimizer.param_groups[0]["lr"], curvature


def test_the_width_of_sgld() -> None:
    """With all data 1 / (1 − k/2), exactly: 4.9 standard errors of the spread between chains."""
    found, h, curvature = measured("sgld", NUM)
    assert_near(found, 1 / (1 - h * curvature / 2))


@pytest.mark.parametrize("batch", [NUM, 16])
def test_the_width_of_psgld(batch: int) -> None:
    """1 + k N / 2b + b/N / (1 + 2k · 1000), the last for the drift left out with a memory of 1000 steps: 5 % or less.

    Tolerance: 4.9 standard errors of the spread between chains, and 2 % for what is of second order: P varies by
    1 / √(its memory's independent gradients), and x² of the examples is not constant.
    """
    found, h, curvature = measured("psgld", batch)
    k = h * curvature * math.sqrt(batch * NUM / curvature)
    excess = k * NUM / (2 * batch) + batch / NUM / (1 + 2 * k * 1000)
    assert excess < 0.06
    assert_near(found, 1 + excess, 0.02)


@pytest.mark.filterwarnings("ignore:no draw will be kept")
def test_default_step_sizes() -> None:
    def lr(method: Method, num_data: int = 400) -> float:
        model = bf.bayesify(nn.Linear(3, 2), method, num_data=num_data)
        return model.optimizer().param_groups[0]["lr"]

    assert lr(bf.ThermostatMCMC()) == lr(bf.MonteCarloVI()) == 1e-3
    assert lr(bf.ThermostatMCMC(sampler="sgld")) == pytest.approx(0.0045 / 400)
    assert lr(bf.ThermostatMCMC(sampler="psgld")) == pytest.approx(0.01 / 8000)
    several = bf.DeepEnsemble(bf.ThermostatMCMC(sampler="psgld"), num_members=4)
    assert lr(several) == pytest.approx(0.01 / 8000 / 4)  # the loss is the mean over members
