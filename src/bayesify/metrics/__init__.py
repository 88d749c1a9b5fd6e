"""Metrics as pure functions. Adding one: a function here and a line in METRICS."""

from collections.abc import Callable

from torch import Tensor

from bayesify.metrics.calibration import Bins, ece, mce, reliability
from bayesify.metrics.classification import accuracy, brier, nll
from bayesify.metrics.regression import rmse

#: name -> function of (probabilities or means, targets)
METRICS: dict[str, Callable[..., Tensor]] = {
    "accuracy": accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "mce": mce,
    "rmse": rmse,
}

__all__ = ["METRICS", "Bins", "accuracy", "brier", "ece", "mce", "nll", "reliability", "rmse"]
