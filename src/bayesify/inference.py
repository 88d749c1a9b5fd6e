"""bf.inference_modes: the three ways to predict with random weights, side by side (paper 5, Section 3)."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator

from bayesify.evaluation import evaluate
from bayesify.methods import Point
from bayesify.module import BayesianModule, bayesify

MODES = ("deterministic", "stochastic", "ensemble")


def inference_modes(
    model: BayesianModule, loader: Iterable[Any], num_draws: int = 20, generator: Generator | None = None
) -> dict[str, dict[str, float]]:
    """Metrics of `bf.evaluate` in each mode; batch norm uses its running statistics in all of them.

    deterministic  the network at the mean of its weights (3)
    stochastic     one draw (2) with K = 1
    ensemble       the average over `num_draws` draws (2)

    Where the modes agree the mean stands for the posterior. Where only the deterministic one is at chance, what was
    learned is in the variances: predict with draws.

    >>> modes = bf.inference_modes(model, test_loader, num_draws=50)
    >>> modes["deterministic"]["accuracy"], modes["ensemble"]["accuracy"]
    """
    if num_draws < 1:
        raise ValueError(f"num_draws={num_draws!r} must be at least 1")
    return {
        "deterministic": evaluate(mean_model(model), loader, 1),
        "stochastic": evaluate(model, loader, 1, generator=generator),
        "ensemble": evaluate(model, loader, num_draws, generator=generator),
    }


def mean_model(model: BayesianModule) -> BayesianModule:
    """The network at the posterior mean, as a model that predicts."""
    with torch.no_grad():
        net = model.mean_net().requires_grad_(False)
        likelihood = copy.deepcopy(model.likelihood)
    return bayesify(net, Point(), likelihood, output=model.output)
