"""Masses that are set for reasons of their own."""

import pytest
import torch
from torch import nn

import bayesify as bf


@pytest.mark.parametrize("chains", [1, 2])
@pytest.mark.parametrize("sampler", ["atmc", "sgld"])
def test_weights_of_an_input_that_is_always_zero_go_through_their_prior(sampler: str, chains: int) -> None:
    """N(0, 1), though the masses of 10,000 examples would keep them where they start. 600 steps are kept, in which 40
    weights forget where they were 20 times: 400 independent values at least, 5 standard errors are 35 %."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    x[:, 1] = 0
    y = x @ torch.ones(3, 40)
    noise = bf.likelihood("normal", std=1.0)
    method = bf.ThermostatMCMC(sampler=sampler)
    model = bf.bayesify(nn.Linear(3, 40), method, likelihood=noise, num_data=10_000)
    batches = [(x, y)] * 20
    if chains == 1:
        bf.fit(model, batches, epochs=60, progress=False, seed=0, compile=False, on_bad_sampling="ignore")
    else:
        bf.sample_chains(model, batches, num_chains=2, epochs=60, on_bad_sampling="ignore")
    draws = torch.stack([w["weight"][:, 1] for _, w in model.posterior.each()])  # type: ignore[operator]
    assert draws.square().mean().item() == pytest.approx(1.0, rel=0.35)


def test_psgld_of_an_ensemble_goes_down_at_the_pace_of_one_network() -> None:
    """The loss is the mean over members, and num_data has their number: the pace is that of SGLD in both."""
    paces = []
    for method in (bf.ThermostatMCMC(sampler="psgld"), bf.ThermostatMCMC(sampler="sgld")):
        model = bf.bayesify(
            nn.Linear(3, 1),
            bf.DeepEnsemble(method, 4),
            likelihood=bf.likelihood("normal", std=1.0),
            num_data=200,
        )
        made = model.optimizer(num_steps=400)
        paces.append(made.unit(next(model.parameters()), made.param_groups[0]))  # type: ignore[attr-defined]
    assert paces[0] == pytest.approx(paces[1])
