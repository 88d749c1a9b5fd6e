"""Samplers at their defaults on posteriors with known moments: a fast part of `make test-sampling`.

A ratio of variances has the standard error that the 40 independent chains show; the tolerance is 4.9 of them (failure
rate 1e-6) and 7 % for discretisation, which is that of (λ/m) h² = 0.36, the most that the warm start allows.
"""

from dataclasses import replace

import pytest
import torch
from data_posteriors import REFERENCED
from data_posteriors import targets as data_posteriors
from densities import correlated, eight_schools_moments, far_gaussian
from recovery import Recovery, recover
from targets import Target, all_targets, regression, regressions

import bayesify as bf

STEPS = 2000


def fast() -> list[Target]:
    logistic = next(t for t in data_posteriors() if t.name == "logistic full")
    return [
        regression(4, 200, 0.1, 10, None, True, seed=5),
        regression(4, 200, 0.1, 10, 100, False, seed=6),
        correlated(20, 10, 5),
        far_gaussian(2, 0),
        logistic,
    ]


@pytest.mark.parametrize("sampler", ["atmc", "sgnht"])
@pytest.mark.parametrize("target", fast(), ids=lambda target: target.name)
def test_the_default_is_right_and_does_not_warn(target: Target, sampler: str) -> None:
    found = recover(target, sampler, steps=STEPS, num_kept=20)
    assert found.verdict == "right", found
    assert ((found.ratio - 1).abs() < 4.9 * found.error + 0.07).all(), found


@pytest.mark.parametrize("sampler", ["sgld", "psgld"])
def test_a_weight_that_no_other_acts_on_is_no_dead_input(sampler: str) -> None:
    """The gradient of the largest of uncorrelated inputs is that of its own weight, with all data in a batch."""
    found = recover(regression(4, 200, 0.1, 30, None, False, seed=5), sampler, steps=STEPS, num_kept=20)
    assert found.verdict == "right" and not found.warnings, found
    assert found.rhat.max() < 1.2, found


def recovery(
    ratio: float, rhat: float = 1.0, said: tuple[str, ...] = (), easy: bool = True, error: float = 0.01
) -> Recovery:
    numbers = (torch.tensor([1.0, ratio]), torch.full((2,), error), torch.tensor([1.0, rhat]))
    return Recovery("t", easy, *numbers, said, 1, 0.0)


def test_what_counts_as_a_miss() -> None:
    assert recovery(1.1).verdict == "right"
    assert recovery(0.5).verdict == recovery(torch.nan).verdict == "SILENT"
    assert recovery(3.0, error=1.0).verdict == "SILENT"
    assert recovery(1.5, error=0.3).verdict == "right"
    shifted = {0.5: (torch.tensor([0.5, 0.6]), torch.tensor([0.01, 0.01]))}
    assert replace(recovery(1.0), quantiles=shifted).verdict == "SILENT"
    assert recovery(0.5, said=("stuck",)).verdict == "said"
    assert recovery(0.5, rhat=1.5).verdict == "slow"
    assert recovery(1.0, said=("stuck",)).verdict == "false alarm"
    assert recovery(1.0, said=("stuck",), easy=False).verdict == "right"
    assert recovery(1.0, rhat=1.35, said=("apart",)).verdict == "right"
    assert recovery(1.0, rhat=35.0).verdict == "slow"


def test_the_zoo_is_as_wide_as_it_says() -> None:
    zoo = all_targets()
    assert len({t.name for t in zoo}) == len(zoo) >= 20
    assert sum(t.easy for t in zoo) >= len(zoo) / 2
    assert {len(t.mean) for t in regressions()} <= set(range(4, 22))
    for t in zoo:
        assert t.mean.shape == t.var.shape and (t.var > 0).all()


def test_eight_schools_against_known_values() -> None:
    """Of posteriordb's reference draws: E μ = 4.4 and sd 3.3, to the tenth that they agree to."""
    mean, var = eight_schools_moments()
    assert mean[0].item() == pytest.approx(4.4, abs=0.1)
    assert var[0].sqrt().item() == pytest.approx(3.3, abs=0.1)


@pytest.mark.parametrize("name", REFERENCED)
def test_the_references_are_of_these_energies(name: str) -> None:
    """The energies of the long runs are those of the models, up to a constant."""
    energy, dims, look = REFERENCED[name]
    weights = torch.randn(7, dims, dtype=torch.float64)
    target = next(t for t in data_posteriors() if t.name == f"{name} full")
    model, loader = target.build(bf.ThermostatMCMC())
    ((x, y),) = loader
    model, x = model.double(), x.double()
    own = []
    for each in weights:
        torch.nn.utils.vector_to_parameters(each, model.net.parameters())
        own.append(model.loss(x, y if name == "logistic" else y.double()).total.item() * len(x))
    difference = torch.tensor(own, dtype=torch.float64) - energy(weights)
    assert difference.std() < 1e-3
    assert look(weights).shape == (7, len(target.mean))
