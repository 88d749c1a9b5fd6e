"""Chains of two weights in a regression, which take seconds, and stored ones that took no steps at all."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.posteriors.chain.draw_store import DrawKey

NUM, STD = 40, 0.05
FAR = 30.0


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(NUM, 2, generator=torch.Generator().manual_seed(0))
    return x, x.sum(1, keepdim=True)


def make(start: float = FAR, **options: Any) -> bf.BayesianModule:
    """Far from the posterior, with a mass that holds the curvature: thermostats wind up. At 1, they do not."""
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, start)
    method = bf.ThermostatMCMC(**{"mass": 0.1, "num_kept": 20, "warm_start": False} | options)
    return bf.bayesify(net, method, likelihood=bf.likelihood("normal", std=STD), num_data=NUM)


def steady(**options: Any) -> bf.BayesianModule:
    """All chains start in the posterior."""
    model = make(start=1.0, **options)
    model.net.reset_parameters = lambda: None  # type: ignore[assignment,method-assign]
    return model


def fit(model: bf.BayesianModule, epochs: int = 600, **options: Any) -> bf.History:
    loader = DataLoader(TensorDataset(*data()), batch_size=NUM)
    return bf.fit(model, loader, epochs=epochs, progress=False, seed=0, accelerator="cpu", **options)


def stored(series: Tensor) -> bf.BayesianModule:
    """A model whose chains are these: (chains, draws), of both weights, or (chains, draws, weights)."""
    model = make(start=1.0)
    model.posterior.begin(num_steps=600)
    model.posterior.steps = 600
    store = model.posterior.store
    for chain, draws in enumerate(series if series.dim() == 3 else series[..., None].expand(-1, -1, 2)):
        for step, weights in enumerate(draws):
            store.add(DrawKey(chain, step), {"weight": weights[None]})
    return model
