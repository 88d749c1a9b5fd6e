"""Predictions in the units of the original targets."""

from collections.abc import Iterator
from typing import Any

from torch import Generator, Tensor, nn

import bayesify as bf
from bayesify.data import Loader, Normalisation
from bayesify.predict.units import in_units


class OriginalUnits:
    """A model of standardised targets, seen in original units: y = target_mean + target_std · t.

    Means are moved back, variances multiplied by target_std²; classification passes through. options: of every
    prediction.
    """

    def __init__(
        self,
        model: bf.BayesianModule,
        normalisation: Normalisation,
        **options: Any,
    ) -> None:
        self.model, self.options = model, options
        self.likelihood = model.likelihood
        self.normalisation = normalisation

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of the model."""
        return self.model.parameters()

    def predict(self, x: Any, num_draws: int = 20, **options: Any) -> bf.Predictive:
        """As `model.predict`, in original units."""
        prediction = self.model.predict(x, num_draws, **{**self.options, **options})
        n = self.normalisation
        if n.target_mean is None or n.target_std is None:
            return prediction
        return in_units(prediction, n.target_mean, n.target_std)


class OriginalTargets:
    """The batches of a loader with the targets in original units."""

    def __init__(self, loader: Loader, normalisation: Normalisation) -> None:
        self.loader = loader
        self.normalisation = normalisation

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.loader:
            yield x, self.normalisation.original_mean(y) if y.is_floating_point() else y


def evaluate(
    model: bf.BayesianModule,
    loader: Loader,
    normalisation: Normalisation,
    num_draws: int,
    num_bins: int = 15,
    **options: Any,
) -> dict[str, float]:
    """`bf.evaluate` in original units, with draws that are the same every time; options of every prediction."""
    generator = Generator(loader.device).manual_seed(0)
    seen: Any = OriginalUnits(model, normalisation, **options)
    return bf.evaluate(seen, OriginalTargets(loader, normalisation), num_draws, num_bins, generator)
