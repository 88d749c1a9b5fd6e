"""Laplace's approximation beside laplace-torch 0.3, whose figures benchmarks/laplace_reference.py stored."""

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

STORED = json.loads((Path(__file__).parent / "laplace_torch.json").read_text(encoding="utf-8"))
CASES = [(task, structure) for task in STORED for structure in STORED[task]["structures"]]
TIGHT = 1e-3


def network(task: str) -> nn.Module:
    sizes = {"regression": [1, 50, 1], "classification": [2, 16, 8, 3]}[task]
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(a, b), nn.Tanh() if i == 0 else nn.ReLU()]
    net = nn.Sequential(*layers[:-1]).double()
    net.load_state_dict(
        {name: torch.tensor(value).double() for name, value in STORED[task]["weights"].items()}
    )
    return net


def fitted(task: str, structure: str, std: float | None = 0.3, **options: Any) -> bf.BayesianModule:
    stored = STORED[task]
    x, y = torch.tensor(stored["x"]).double(), torch.tensor(stored["y"])
    y = y.double() if task == "regression" else y
    law = bf.likelihood("normal", **({} if std is None else {"std": std}))
    model = bf.bayesify(
        network(task), bf.Laplace(structure, **options), law if task == "regression" else "categorical"
    )
    bf.fit(model, DataLoader(TensorDataset(x, y), 50), progress=False, precision="64-true")
    return model


@pytest.mark.parametrize(("task", "structure"), CASES)
def test_output_covariances_and_evidence_at_given_precision_and_noise(task: str, structure: str) -> None:
    stored = STORED[task]["structures"][structure]
    model = fitted(task, structure, prior_precision=2.0)
    assert model.posterior.log_evidence == pytest.approx(stored["log_marginal_likelihood"], rel=TIGHT)
    found = covariance(model, torch.tensor(STORED[task]["x_test"]).double())
    assert torch.allclose(found, torch.tensor(stored["cov"]).double(), rtol=TIGHT, atol=1e-6)


@pytest.mark.parametrize(("task", "structure"), CASES)
def test_the_optimum_of_the_marginal_likelihood(task: str, structure: str) -> None:
    stored = STORED[task]["structures"][structure]
    model = fitted(task, structure, std=None, prior_precision="marglik")
    assert float(model.posterior.covariance.deltas[0]) == pytest.approx(
        stored["best_prior_precision"], rel=TIGHT
    )
    assert model.posterior.log_evidence == pytest.approx(stored["best_log_marginal_likelihood"], rel=TIGHT)
    if task == "regression":
        assert float(model.likelihood.std.detach()) == pytest.approx(stored["best_noise"], rel=TIGHT)


def covariance(model: bf.BayesianModule, x: torch.Tensor) -> torch.Tensor:
    from bayesify.predict.linearised import output_law
    from bayesify.weights import as_call

    law, call = model.posterior.linear_law(model.net), as_call(x)
    model.eval()
    with warnings.catch_warnings(), torch.no_grad():
        found = output_law(model.net, law, call, model.pick, model.net(x))
    assert found.cov is not None
    return found.cov
