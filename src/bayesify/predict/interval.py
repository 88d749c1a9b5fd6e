"""`prediction.interval`: the conformal interval, or the central one of the predictive itself."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bayesify.checks import Share, checked


class Interval:
    """Two intervals of a prediction.

    `low, high = prediction.interval` is the conformal one, which `bf.conformal` is for.
    `low, high = prediction.interval(0.9)` is the central one of the predictive, as the model has it.
    """

    def __init__(self, prediction: Any) -> None:
        self.prediction = prediction

    @checked
    def __call__(self, mass: Share | None = None) -> tuple[Tensor, Tensor]:
        """The central interval that holds `mass` of the predictive (regression) or of the draws' probabilities
        (classification), from the kept samples. None: the conformal interval where there is one, else 0.9."""
        p = self.prediction
        if mass is None and p.conformal is not None and p.likelihood.task == "regression":
            return p.conformal.interval(p)
        samples, _ = p._per_draw("interval")
        mass = 0.9 if mass is None else mass
        lower, upper = (1 - mass) / 2, (1 + mass) / 2
        if p.likelihood.task == "classification":
            return _quantile(samples, lower), _quantile(samples, upper)
        return p._law.quantile(lower), p._law.quantile(upper)

    def __iter__(self) -> Iterator[Tensor]:
        """low and high of the conformal interval."""
        self.prediction._only("regression", "interval", "sets, or .interval(0.9) of the draws' probabilities")
        return iter(self.prediction._rule("interval").interval(self.prediction))

    def __getitem__(self, index: int) -> Tensor:
        """0: low, 1: high."""
        return [*self][index]


def _quantile(values: Tensor, level: float) -> Tensor:
    """Quantile over the first dimension, linear between order statistics (torch.quantile has a size limit)."""
    ordered = values.sort(0).values
    position = level * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], position - low)
