"""Accuracy, NLL and calibration under 15 corruptions at five severities."""

import numpy as np
import torch
from torch import Tensor

from bayesify.data.loader import derived_seed
from bayesify.evaluation.evaluate import add_prediction
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.studies.corruptions import COMMON, SEVERITIES, corrupt
from bayesify.studies.suites.subject import Outcome, Subject

KEYS = ("accuracy", "nll", "ece")


def corruption_suite(subject: Subject) -> Outcome:
    """Means over corruptions and severities, and a number for each; mCE needs a reference (see reports)."""
    clean = ClassificationTally(subject.num_bins)
    tallies = {(c, s): ClassificationTally(subject.num_bins) for c in range(len(COMMON)) for s in SEVERITIES}
    draws = subject.generator()
    for number, (images, target) in enumerate(subject.images("corruption")):
        for cell, tally in [(None, clean), *tallies.items()]:
            x = images if cell is None else corrupted(subject, images, number, *cell)
            prediction = subject.model.predict(subject.from_images(x), subject.num_draws, generator=draws)
            add_prediction(tally, prediction, target)
    found = {key: np.zeros((len(COMMON), len(SEVERITIES))) for key in KEYS}
    for (c, severity), tally in tallies.items():
        numbers = tally.metrics()
        for key in KEYS:
            found[key][c, severity - 1] = numbers[key]
    base = clean.metrics()
    metrics = {f"corrupted/{key}": float(found[key].mean()) for key in KEYS}
    metrics |= {f"clean/{key}": base[key] for key in KEYS}
    metrics["num_bins"] = float(subject.num_bins)
    return Outcome(metrics, {"clean_error": np.array(1 - base["accuracy"]), **found})


def corrupted(subject: Subject, images: Tensor, number: int, c: int, severity: int) -> Tensor:
    """Images under corruption number `c` of COMMON. Draws depend on the batch, the corruption and the severity alone:
    every model sees the same images."""
    key = (number, c, severity)
    if subject.memory is not None and key in subject.memory:
        return subject.memory[key]
    generator = torch.Generator(images.device).manual_seed(derived_seed(subject.seed, *key))
    x = corrupt(images, COMMON[c], severity, generator)
    if subject.memory is not None:
        subject.memory[key] = x
    return x
