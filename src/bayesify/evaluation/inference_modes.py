"""bf.inference_modes: the three ways to predict with random weights, side by side (paper 5, Section 3)."""

from collections.abc import Iterable
from typing import Any

from torch import Generator

from bayesify.checks import Count, checked
from bayesify.evaluation.evaluate import evaluate
from bayesify.model import BayesianModule
from bayesify.predict.at_means import AtMeans
from bayesify.predict.prediction import MODES

__all__ = ["MODES", "inference_modes"]


@checked
def inference_modes(
    model: BayesianModule, loader: Iterable[Any], num_draws: Count = 20, generator: Generator | None = None
) -> dict[str, dict[str, float]]:
    """Metrics of `bf.evaluate` in each mode of `model.predict`; batch norm uses its running statistics in all of them.

    deterministic  the network at the mean of its weights (3); in a deep ensemble every member at its own
    stochastic     one draw (2) with K = 1; in a deep ensemble one of every member
    ensemble       the average over `num_draws` draws (2)

    Where the modes agree the mean stands for the posterior. Where only the deterministic one is at chance, what was
    learned is in the variances: predict with draws.

    >>> modes = bf.inference_modes(model, test_loader, num_draws=50)
    >>> modes["deterministic"]["accuracy"], modes["ensemble"]["accuracy"]
    """
    return {
        "deterministic": evaluate(AtMeans(model), loader, 1),
        "stochastic": evaluate(model, loader, 1, generator=generator),
        "ensemble": evaluate(model, loader, num_draws, generator=generator),
    }
