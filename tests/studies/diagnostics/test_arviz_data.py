"""Draws in arviz: what is where, and its numbers beside ours."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    az = pytest.importorskip("arviz")


def data(num: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(num, 3)
    return x, (x[:, 0] > 0).long()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


@pytest.fixture(scope="module")
def chains() -> bf.BayesianModule:
    """Three chains of 40 draws."""
    torch.manual_seed(0)
    model = bf.bayesify(net(), bf.ThermostatMCMC(burn_in=20, every=2), num_data=12)
    x, y = data()
    bf.sample_chains(model, [(x, y)], num_chains=3, epochs=100, lr=1e-2, on_bad_sampling="ignore")
    return model


def test_rhat_and_ess_of_arviz_are_ours(chains: bf.BayesianModule) -> None:
    torch.manual_seed(0)
    x, y = data()
    found = bf.diagnostics.to_arviz(chains, [(x, y)], num_examples=12)
    ours = bf.diagnostics.function_values(chains, x, of=lambda out: out.softmax(1))
    rhat = az.rhat(found, method="split")["prediction"].values.ravel()
    assert torch.allclose(torch.tensor(rhat), bf.diagnostics.rhat(ours).double(), rtol=1e-5)
    ess = torch.tensor(az.ess(found, method="mean")["prediction"].values.ravel())
    assert torch.allclose(ess, bf.diagnostics.ess(ours), rtol=1e-4)


def test_what_chains_say(chains: bf.BayesianModule) -> None:
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    found = bf.diagnostics.to_arviz(chains, loader, weights=["0.weight", "2.bias"], entries=3, num_examples=4)
    assert dict(found.posterior.sizes)["chain"] == 3 and dict(found.posterior.sizes)["draw"] == 40
    assert found.posterior["prediction"].shape == (3, 40, 4, 2)
    assert found.log_likelihood["y"].shape == (3, 40, 12)
    assert found.observed_data["y"].values.tolist() == y.tolist()
    assert set(found.posterior.data_vars) == {"0.weight", "2.bias", "prediction"}
    assert found.posterior["0.weight"].shape == (3, 40, 3) and found.posterior["2.bias"].shape == (3, 40, 2)
    assert found.sample_stats["step"].values[0].tolist() == list(range(22, 102, 2))
    assert found.attrs["method"] == "atmc"
    # by hand, of the first draw
    key, weights = next(iter(chains.posterior.each()))
    assert (
        found.posterior["0.weight"].values[0, 0].tolist()
        == weights["0.weight"].flatten()[[0, 7, 14]].tolist()
    )
    with torch.no_grad():
        logits = torch.func.functional_call(chains.net, weights, (x,))
    expected = logits.log_softmax(1)[torch.arange(12), y]
    assert torch.allclose(torch.tensor(found.log_likelihood["y"].values[0, 0]), expected, atol=1e-5)
    normal = torch.distributions.Normal(0.0, 1.0)
    lp = expected.sum() + sum(normal.log_prob(w).sum() for w in weights.values())
    assert found.sample_stats["lp"].values[0, 0] == pytest.approx(lp.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("method", "num_chains", "draws"),
    [
        (bf.MonteCarloVI(), 1, 30),
        (bf.DeepEnsemble(bf.MonteCarloVI(), 3), 3, 10),
        (bf.MCDropout(drop_prob=0.5), 1, 30),
        (bf.EnsemblePatching(), 1, 30),
        (bf.IVON(), 1, 30),
    ],
    ids=["mc_vi", "ensemble", "mc_dropout", "emp", "ivon"],
)
def test_methods_without_chains_draw(method: Any, num_chains: int, draws: int) -> None:
    model = bf.bayesify(net(), method, num_data=12)
    x, y = data()
    generator = torch.Generator().manual_seed(1)
    found = bf.diagnostics.to_arviz(model, [(x, y)], num_draws=30, num_examples=12, generator=generator)
    value = torch.tensor(found.posterior["prediction"].values)
    assert value.shape == (num_chains, draws, 12, 2)
    assert torch.allclose(value.sum(-1), torch.ones(num_chains, draws, 12), atol=1e-5)
    log_lik = torch.tensor(found.log_likelihood["y"].values)
    assert torch.allclose(log_lik, value[..., torch.arange(12), y].log(), atol=1e-4)
    assert "sample_stats" not in found.groups()
    assert value.std(1).max() > 0


def test_regression_and_cross_validation() -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.MonteCarloVI(), "normal", num_data=12)
    x, _ = data()
    found = bf.diagnostics.to_arviz(model, [(x, x[:, :1])], num_draws=200, num_examples=2)
    assert found.posterior["prediction"].shape == (1, 200, 2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waic = az.waic(found)
    log_lik = torch.tensor(found.log_likelihood["y"].values[0]).double()
    expected = (log_lik.logsumexp(0) - math.log(200)).sum() - log_lik.var(0, correction=0).sum()
    assert waic.elpd_waic == pytest.approx(expected.item(), rel=1e-5)


def test_errors() -> None:
    model = bf.bayesify(net(), bf.ThermostatMCMC(), num_data=12)
    with pytest.raises(RuntimeError, match="no draws yet"):
        bf.diagnostics.to_arviz(model, [data()])
    with pytest.raises(ValueError, match="the loader is empty"):
        bf.diagnostics.to_arviz(model, [])
    with pytest.raises(ValueError, match=r"0\.weight"):
        bf.diagnostics.to_arviz(model, [data()], weights=["0.wait"])
    with pytest.raises((TypeError, ValueError), match="num_draws"):
        bf.diagnostics.to_arviz(model, [data()], num_draws=0)
