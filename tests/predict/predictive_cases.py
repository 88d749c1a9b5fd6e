"""What the tests of predictions share: predictives of given draws, a small random model, and the derived tolerance."""

from collections.abc import Sequence
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import bayesify as bf
from bayesify.predict.accumulation import Accumulator

FAILURE_RATE = 1e-6
P1, P2 = (0.7, 0.2, 0.1), (0.1, 0.6, 0.3)  # two draws' probabilities for one example


def predictive(
    likelihood: bf.likelihoods.Likelihood, draws: Sequence[Any], keep: bool = False
) -> bf.Predictive:
    accumulator = Accumulator(likelihood, keep)
    for output in draws:
        accumulator.add(pytree.tree_map(lambda t: t[None], output))
    return accumulator.result()


def two_draws(keep: bool = False) -> bf.Predictive:
    return predictive(bf.likelihood("categorical"), [torch.tensor([p]).log() for p in (P1, P2)], keep)


MEANS, LOG_VARS = torch.randn(
    2, 7, 4, 2, generator=torch.Generator().manual_seed(0)
)  # (draws, batch, outputs)


def regression(keep: bool = False) -> bf.Predictive:
    draws = list(zip(MEANS, LOG_VARS, strict=True))
    return predictive(bf.likelihood("heteroscedastic"), draws, keep)


def make(likelihood: str = "categorical", outputs: int = 3, **options: Any) -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))
    return bf.bayesify(net, bf.MonteCarloVI(init_std=0.5, **options), likelihood, num_data=10)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def loader(*tensors: Tensor, batch_size: int) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size)


def assert_equal_means(a: Tensor, b: Tensor) -> None:
    """Two samples (draws, ...) of the same law: the difference of means within z standard errors."""
    z = stats.norm.isf(FAILURE_RATE / 2 / a[0].numel())
    error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() <= z * error).all()
