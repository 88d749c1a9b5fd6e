"""R-hat and ESS against their formulas, written out, and against chains whose answer is known."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.studies.diagnostics import autocorrelation, ess, function_values, rhat


def ar1(rho: float, chains: int, draws: int, seed: int = 0) -> Tensor:
    """Stationary AR(1) chains of variance 1: ρ_t = rho^t."""
    noise = torch.randn(chains, draws, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = noise.clone()
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + math.sqrt(1 - rho**2) * noise[:, t]
    return x


def test_rhat_is_its_formula() -> None:
    """Gelman et al., BDA3, eq. 11.3-11.4, with numpy, on the halves of three chains of 40."""
    x = ar1(0.5, 3, 40) + torch.tensor([[0.0], [0.5], [-0.2]])
    halves = np.concatenate([x[:, :20].numpy(), x[:, 20:].numpy()])
    within = np.mean([h.var(ddof=1) for h in halves])
    between = 20 * np.var([h.mean() for h in halves], ddof=1)
    expected = math.sqrt((19 / 20 * within + between / 20) / within)
    assert rhat(x).item() == pytest.approx(expected, rel=1e-12)


def test_rhat_finds_chains_that_disagree_or_drift() -> None:
    good = ar1(0.3, 4, 500)
    assert rhat(good).item() < 1.02
    assert rhat(good + torch.arange(4)[:, None]).item() > 1.3
    assert rhat(good + torch.linspace(0, 3, 500)).item() > 1.2


def test_autocorrelation_is_its_definition() -> None:
    x = ar1(0.7, 2, 50)
    centred = (x - x.mean(1, keepdim=True)).numpy()
    found = autocorrelation(x)
    for lag in (0, 1, 7, 49):
        expected = (centred[:, : 50 - lag] * centred[:, lag:]).sum(1) / (centred**2).sum(1)
        assert found[:, lag].tolist() == pytest.approx(expected.tolist(), abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_ess_of_an_autoregressive_chain(rho: float) -> None:
    """n (1 − ρ)/(1 + ρ). The variance of the mean over 4000 independent chains shows that it is the right number."""
    x = ar1(rho, 40, 5000, seed=1)
    expected = 200_000 * (1 - rho) / (1 + rho)
    assert ess(x).item() == pytest.approx(expected, rel=0.1)
    means = ar1(rho, 4000, 200, seed=2).mean(1)
    exact = 200 * (1 - rho) / (1 + rho)
    assert 1 / means.var().item() == pytest.approx(exact, rel=0.15)


def test_many_quantities_at_once() -> None:
    x = torch.stack([ar1(0.2, 3, 100, s) for s in range(5)], -1).unflatten(-1, (5, 1))
    assert rhat(x).shape == ess(x).shape == (5, 1)
    assert ess(x)[2, 0] == pytest.approx(ess(x[..., 2, 0]).item())


def test_too_few_draws() -> None:
    with pytest.raises(ValueError, match=r"draws of shape \(2, 3\) must be .* at least 4 draws"):
        rhat(torch.zeros(2, 3))


def test_draws_that_are_all_the_same_or_no_numbers_say_nothing() -> None:
    for value in (1.0, math.nan):
        assert rhat(torch.full((2, 10), value)).isnan() and ess(torch.full((2, 10), value)).isnan()


def test_function_values_of_stored_draws() -> None:
    net = nn.Linear(2, 3)
    method = bf.ThermostatMCMC(burn_in=0, every=1)
    model = bf.bayesify(net, bf.DeepEnsemble(method, 2), num_data=4)
    sampler = model.optimizer(lr=0.01)
    x, y = torch.randn(4, 2), torch.tensor([0, 1, 2, 0])
    for _ in range(6):
        sampler.zero_grad()
        model.loss(x, y).total.backward()
        sampler.step()
    values = function_values(model, x)
    assert values.shape == (2, 6, 12)  # chains, draws, outputs
    last = model.net(x).flatten()
    torch.testing.assert_close(values[0, -1], last.detach())
    assert rhat(values).shape == (12,)
    with pytest.raises(TypeError, match="keeps no chain of draws"):
        function_values(bf.bayesify(nn.Linear(2, 3), bf.Point()), x)
