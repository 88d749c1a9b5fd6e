"""What a suite looks at, and what it gives back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from bayesify.data import Loader, Normalisation, Split
from bayesify.evaluation.evaluate import tally_of
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.model import BayesianModule
from bayesify.predict.predictive import Predictive


class Unsuitable(ValueError):
    """A suite that has nothing to say about this model or data; the message says which one it is for."""


@dataclass(frozen=True)
class Outcome:
    """What one suite found: numbers by name, and arrays for figures."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A trained model and data in original units: images as bytes or numbers from 0 to 1.

    model: has `predict`, `parameters` and `likelihood`.
    val: for temperature scaling; None leaves that out.
    ood: name -> inputs of another kind, in the units of test.
    memory: where corrupted images are kept for the next subject with the same test part; None keeps none.
    num_few: examples for suites that take many passes for each (adversarial, saliency).
    """

    model: Any
    test: Split
    normalisation: Normalisation
    val: Split | None = None
    ood: Mapping[str, Any] = field(default_factory=dict)
    num_draws: int = 20
    num_bins: int = 15
    batch_size: int = 256
    seed: int = 0
    num_few: int = 64
    memory: dict[Any, Tensor] | None = None

    @property
    def module(self) -> BayesianModule:
        """The model inside wrappers that only change predictions (units, temperature)."""
        model = self.model
        while not isinstance(model, BayesianModule):
            model = model.model
        return model

    @cached_property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def regression(self) -> bool:
        """Are the targets numbers, not classes?"""
        return self.model.likelihood.task == "regression"

    def generator(self) -> Generator:
        """A fresh one at each call: every suite gives the same numbers alone and beside others."""
        return Generator(self.device).manual_seed(self.seed)

    def batches(self, split: Split) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalised batches of a split."""
        return iter(Loader(split, self.batch_size, device=self.device, normalise=self.normalisation))

    def normalised(self, inputs: Tensor) -> Tensor:
        """Inputs in original units as the network takes them."""
        return self.normalisation.inputs(inputs).to(self.device)

    def tally(self, model: Any = None) -> ClassificationTally:
        """What was predicted for the test part, by the subject's own model where none is given."""
        chosen = self.model if model is None else model
        batches, generator = self.batches(self.test), self.generator()
        return tally_of(chosen, batches, self.num_draws, self.num_bins, generator)[0]

    def predict(self, inputs: Tensor) -> Predictive:
        """The model's prediction, with the draws that every call has."""
        return self.model.predict(inputs, self.num_draws, generator=self.generator())

    def first(self, count: int) -> Split:
        """The first examples of the test part, in original units."""
        return self.test.take(torch.arange(min(count, len(self.test))))

    def few(self) -> tuple[Tensor, Tensor]:
        """The first examples of the test part, normalised, and their targets."""
        part = self.first(self.num_few)
        return self.normalised(torch.as_tensor(part.inputs[:])), part.targets.to(self.device)

    def images(self, suite: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of raw images (N, C, H, W) in 0 … 1 on the device, and targets."""
        self.classifies(suite)
        shape = tuple(self.test.inputs.shape)
        if len(shape) != 4 or shape[1] not in (1, 3):
            raise Unsuitable(
                f"suite {suite!r} takes images (N, 1 or 3, H, W): the inputs have shape {shape[1:]}"
            )
        for index in torch.arange(len(self.test)).split(self.batch_size):
            part = self.test.take(index)
            x = torch.as_tensor(part.inputs[:]).to(self.device)
            yield x.float() / 255 if x.dtype == torch.uint8 else x.clamp(0, 1), part.targets.to(self.device)

    def from_images(self, images: Tensor) -> Tensor:
        """Raw images in 0 … 1 as the network takes them."""
        return self.normalisation.inputs(images, images.dtype)

    def classifies(self, suite: str) -> None:
        """Raise where the model is no classifier."""
        if self.regression:
            raise Unsuitable(
                f"suite {suite!r} is for classification; this run is a regression: use calibration"
            )
