"""SGLD draws from the posterior it says it draws from."""

import math

import pytest
import torch
from torch import nn

from bayesify.samplers import SAMPLERS, SGLD


def test_recovers_a_gaussian_up_to_its_known_discretisation_error() -> None:
    """Target N(0, 1), U = θ²/2: the stationary variance of the chain is 1 / (1 − h/2), exactly.

    20,000 independent chains, one value each: the standard error of a variance is √(2/n), and 4.9 of
    them fail once in 10⁶.
    """
    chains, h = 20_000, 0.05
    theta = nn.Parameter(torch.randn(chains, dtype=torch.float64))
    sampler = SGLD([theta], lr=h, num_data=10)
    for _ in range(300):  # the start is forgotten as (1 − h)^600
        theta.grad = theta.detach() / 10  # of the mean loss: U / num_data
        sampler.step()
    expected = 1 / (1 - h / 2)
    assert theta.var().item() == pytest.approx(expected, abs=4.9 * expected * math.sqrt(2 / chains))
    assert theta.mean().item() == pytest.approx(0, abs=4.9 * math.sqrt(expected / chains))


def test_temperature_scales_the_variance() -> None:
    chains = 20_000
    theta = nn.Parameter(torch.randn(chains, dtype=torch.float64))
    sampler = SGLD([theta], lr=0.05, num_data=1, temperature=0.25)
    for _ in range(300):
        theta.grad = theta.detach().clone()
        sampler.step()
    expected = 0.25 / (1 - 0.05 / 2)
    assert theta.var().item() == pytest.approx(expected, abs=4.9 * expected * math.sqrt(2 / chains))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resumed_chain_draws_the_same_numbers(name: str) -> None:
    def chain(steps: int, sampler: torch.optim.Optimizer, theta: nn.Parameter) -> None:
        for _ in range(steps):
            theta.grad = theta.detach().clone()
            sampler.step()

    theta = nn.Parameter(torch.ones(5))
    sampler = SAMPLERS[name]([theta], lr=0.1, num_data=3)  # type: ignore[call-arg]
    chain(4, sampler, theta)
    middle, state = theta.detach().clone(), sampler.state_dict()
    chain(4, sampler, theta)
    again = nn.Parameter(middle)
    resumed = SAMPLERS[name]([again], lr=0.1, num_data=3, seed=99)  # type: ignore[call-arg]
    resumed.load_state_dict(state)
    chain(4, resumed, again)
    assert torch.equal(again, theta)


def test_bad_numbers() -> None:
    theta = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="num_data=0"):
        SGLD([theta], lr=0.1, num_data=0)
    with pytest.raises(ValueError, match="lr=-1"):
        SGLD([theta], lr=-1, num_data=5)
    with pytest.raises(ValueError, match="temperature=-1"):
        SGLD([theta], lr=0.1, num_data=5, temperature=-1)
