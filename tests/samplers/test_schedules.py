"""Step sizes and sample times are what the formulas say."""

import math

import pytest
import torch
from torch import nn

from bayesify.samplers import ATMC
from bayesify.samplers.schedules import Cyclic, SampleTimes


def test_cyclic_values() -> None:
    """h₀ ½ [1 + cos(π mod(t, n)/n)], n = 4."""
    factors = [Cyclic(4).factor(t) for t in range(9)]
    half = math.sqrt(0.5)
    cycle = [1.0, (1 + half) / 2, 0.5, (1 - half) / 2]
    assert factors == pytest.approx([*cycle, *cycle, 1.0])


def test_a_schedule_moves_the_step_and_leaves_the_noise() -> None:
    theta = nn.Parameter(torch.zeros(2))
    sampler = ATMC([theta], lr=0.1, num_data=1)
    scheduler = Cyclic(2)(sampler, 100)
    noise = sampler.param_groups[0]["noise"]
    assert noise == pytest.approx(-math.log(0.9) / 0.1)
    rates = []
    for _ in range(3):
        rates.append(sampler.param_groups[0]["lr"])
        theta.grad = torch.zeros(2)
        sampler.step()
        scheduler.step()
    assert rates == pytest.approx([0.1, 0.05, 0.1])
    assert sampler.param_groups[0]["noise"] == noise
    assert scheduler.state_dict()["lr_lambdas"] == [None]  # plain data: a checkpoint can hold it


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (SampleTimes(burn_in=3, every=2), [5, 7, 9, 11]),
        (SampleTimes(cycle=4, every=None), [4, 8, 12]),
        (SampleTimes(burn_in=4, cycle=4, every=None), [8, 12]),
        (SampleTimes(cycle=6, every=2, part=0.5), [4, 6, 10, 12]),
    ],
)
def test_sample_times(times: SampleTimes, expected: list[int]) -> None:
    assert [t for t in range(1, 13) if times.due(t)] == expected


def test_the_papers_numbers_of_draws() -> None:
    """1000 epochs, burn-in 150. CIFAR-10, cycles of 50: 17 draws. ImageNet, cycles of 20: the ends after
    epoch 160, 180, … 1000 are 43 (850 / 20 = 42.5)."""
    for cycle, count in ((50, 17), (20, 43)):
        times = SampleTimes(burn_in=150, every=None, cycle=cycle)
        assert sum(times.due(t) for t in range(1, 1001)) == count


def test_bad_numbers() -> None:
    with pytest.raises(ValueError, match="cycle=0 must be a whole number of at least 1"):
        Cyclic(0)
    with pytest.raises(ValueError, match="every=None needs a cycle"):
        SampleTimes(every=None)
    with pytest.raises(ValueError, match="part=0 must lie in"):
        SampleTimes(cycle=4, part=0)
    with pytest.raises(ValueError, match="burn_in=-1"):
        SampleTimes(burn_in=-1)
