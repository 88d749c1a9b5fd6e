"""Batches of a few examples, or with some that are far larger than others, do not carry a chain away."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

STD = 0.1


def data(kind: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator)
    if kind == "counts":
        x = 10 * torch.poisson(torch.full((1000, 4), 0.05), generator=generator)
    return x, x.sum(1, keepdim=True) + STD * torch.randn(len(x), 1, generator=generator)


def model_of(x: Tensor) -> bf.BayesianModule:
    torch.manual_seed(0)
    likelihood = bf.likelihood("normal", std=STD)
    return bf.bayesify(nn.Linear(4, 1), bf.ThermostatMCMC(), likelihood, num_data=len(x))


def error(model: bf.BayesianModule, x: Tensor, y: Tensor) -> float:
    """Root mean square, in units of the noise."""
    return float((model.predict(x).mean - y).square().mean().sqrt()) / STD


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
@pytest.mark.parametrize(("kind", "batch"), [("plain", 1), ("plain", 2), ("plain", 4), ("counts", 32)])
def test_small_batches_and_sparse_features_reach_the_posterior(kind: str, batch: int) -> None:
    x, y = data(kind)
    model, loader = model_of(x), DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
    bf.fit(model, loader, epochs=2000 // len(loader), progress=False, seed=0, accelerator="cpu")
    assert error(model, x, y) < 1.2


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
@pytest.mark.parametrize("scale", [3.0, 10.0])
def test_a_loop_of_ones_own_survives_features_of_another_scale(scale: float) -> None:
    x, y = data("plain")
    x = scale * x
    model = model_of(x)
    sampler, steps = model.optimizer(num_steps=2000), 0
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    while steps < 2000:
        for inputs, target in loader:
            sampler.zero_grad()
            model(inputs, target=target).total.backward()
            sampler.step()
            steps += 1
    assert error(model, x, y) < 1.5
