"""bf.inference_modes: the three ways to predict with random weights, side by side (paper 5, Section 3)."""

import copy
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator

from bayesify.evaluation import evaluate
from bayesify.methods import DeepEnsemble, Point
from bayesify.module import BayesianModule, bayesify

MODES = ("deterministic", "stochastic", "ensemble")


def inference_modes(
    model: BayesianModule, loader: Iterable[Any], num_draws: int = 20, generator: Generator | None = None
) -> dict[str, dict[str, float]]:
    """Metrics of `bf.evaluate` in each mode; batch norm uses its running statistics in all of them.

    deterministic  the network at the mean of its weights (3); in a deep ensemble every member at its own
    stochastic     one draw (2) with K = 1
    ensemble       the average over `num_draws` draws (2)

    Where the modes agree the mean stands for the posterior. Where only the deterministic one is at chance, what was
    learned is in the variances: predict with draws.

    >>> modes = bf.inference_modes(model, test_loader, num_draws=50)
    >>> modes["deterministic"]["accuracy"], modes["ensemble"]["accuracy"]
    """
    if num_draws < 1:
        raise ValueError(f"num_draws={num_draws!r} must be at least 1, e.g. num_draws=10")
    return {
        "deterministic": evaluate(mean_model(model), loader, 1),
        "stochastic": evaluate(model, loader, 1, generator=generator),
        "ensemble": evaluate(model, loader, num_draws, generator=generator),
    }


def mean_model(model: BayesianModule) -> BayesianModule:
    """The network at the posterior mean, every member of an ensemble at its own, as a model that predicts."""
    count = len(model.posterior.nets(model.net))
    with torch.no_grad():
        nets = [model.mean_net()] if count == 1 else [model.member(i) for i in range(count)]
        likelihood = copy.deepcopy(model.likelihood)
    method = Point() if count == 1 else DeepEnsemble(Point(), count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the members are overwritten: how they started does not matter
        mean = bayesify(nets[0], method, likelihood, output=model.output).requires_grad_(False)
    for made, net in zip(mean.posterior.nets(mean.net), nets, strict=True):
        made.load_state_dict(net.state_dict())
    return mean
