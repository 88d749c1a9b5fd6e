"""Telling inputs of another kind from test inputs, by several scores."""

import math

import numpy as np
import torch
from torch import Tensor

from bayesify.data import Split
from bayesify.evaluation.evaluate import SCORES, scores_of
from bayesify.evaluation.metrics.registry import measured, reported
from bayesify.studies.suites.subject import Outcome, Subject

HISTOGRAM_BINS = 40


def ood_suite(subject: Subject) -> Outcome:
    """AUROC, AUPR and FPR95 with the other inputs positive; uniform noise where no other data is named."""
    subject.classifies("ood")
    sets = dict(subject.ood) if subject.ood else {"noise": noise_like(subject.test, subject.seed)}
    generator = subject.generator()
    batches = subject.batches(subject.test)
    inside = scores_of(subject.model, (x for x, _ in batches), subject.num_draws, generator)
    edges = torch.linspace(0, math.log(num_classes(subject)), HISTOGRAM_BINS + 1)
    metrics: dict[str, float] = {}
    arrays = {"edges": edges.numpy(), "inside": _histogram(inside["entropy"], edges)}
    for name, inputs in sets.items():
        whole = torch.as_tensor(inputs[:])
        parts = (subject.normalised(part) for part in whole.split(subject.batch_size))
        outside = scores_of(subject.model, parts, subject.num_draws, generator)
        for score in SCORES:
            ending = "" if score == "entropy" else f"_{score}"
            for key in reported("ood"):
                metrics[f"{name}/{key}{ending}"] = measured(key, inside[score], outside[score])
        arrays[f"outside_{name}"] = _histogram(outside["entropy"], edges)
    return Outcome(metrics, arrays)


def noise_like(split: Split, seed: int) -> Tensor:
    """As many inputs as the split has (at most 2,000), of independent uniform numbers in its range."""
    shape = (min(len(split), 2000), *split.inputs.shape[1:])
    generator = torch.Generator().manual_seed(seed)
    if split.inputs.dtype == torch.uint8:
        return torch.randint(256, shape, generator=generator).to(torch.uint8)
    sample = torch.as_tensor(split.inputs[:])
    low, high = sample.amin(0), sample.amax(0)
    if len(shape) == 4:  # one range for all pixels
        low, high = low.amin(), high.amax()
    return low + (high - low) * torch.rand(shape, generator=generator)


def num_classes(subject: Subject) -> int:
    """The number of classes that the model tells apart."""
    x, _ = subject.few()
    prediction = subject.model.predict(x[:1], 1)
    return prediction.likelihood.classes.count(prediction.mean)


def _histogram(values: Tensor, edges: Tensor) -> np.ndarray:
    """Shares of the values between the edges; what lies outside counts at the ends."""
    values = values.float().clamp(float(edges[0]), float(edges[-1]))
    count = torch.histogram(values, edges.float()).hist
    return (count / len(values)).numpy()
