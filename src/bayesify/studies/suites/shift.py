"""Accuracy and uncertainty as inputs turn, and as noise drowns them (paper 3, Fig. 1c and 3)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from bayesify.data.loader import derived_seed
from bayesify.evaluation.evaluate import add_prediction
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.studies.corruptions import add_noise, rotate
from bayesify.studies.suites.subject import Outcome, Subject

DEGREES = (0, 15, 30, 45, 60, 90, 120, 150, 180)
SNR_DB = (30, 20, 15, 10, 6, 3, 0, -3, -6)


def shift_suite(subject: Subject) -> Outcome:
    """Rotation in degrees and noise at a signal-to-noise ratio in dB; the variance of the predicted class too."""
    rotated = _measured(subject, DEGREES, lambda x, degrees, _: rotate(x, degrees))
    noisy = _measured(subject, SNR_DB, add_noise)
    metrics = {
        "rotated_30/accuracy": rotated["accuracy"][DEGREES.index(30)],
        "rotated_30/ece": rotated["ece"][DEGREES.index(30)],
        "snr_-6/accuracy": noisy["accuracy"][SNR_DB.index(-6)],
        "num_bins": float(subject.num_bins),
    }
    arrays = {"degrees": np.array(DEGREES), "snr_db": np.array(SNR_DB)}
    arrays |= {f"rotated_{key}": np.array(value) for key, value in rotated.items()}
    arrays |= {f"noisy_{key}": np.array(value) for key, value in noisy.items()}
    return Outcome(metrics, arrays)


def _measured(
    subject: Subject, levels: Sequence[float], change: Callable[[Tensor, float, Generator], Tensor]
) -> dict[str, list[float]]:
    """Accuracy, ECE, mean entropy and mean variance of the predicted class at each level."""
    tallies = [ClassificationTally(subject.num_bins) for _ in levels]
    variance: list[list[Tensor]] = [[] for _ in levels]
    draws = subject.generator()
    for number, (images, target) in enumerate(subject.images("shift")):
        for i, level in enumerate(levels):
            noise = Generator(images.device).manual_seed(derived_seed(subject.seed, number, i))
            x = subject.from_images(change(images, level, noise))
            prediction = subject.model.predict(x, subject.num_draws, generator=draws)
            add_prediction(tallies[i], prediction, target)
            if prediction.likelihood.is_multiclass:
                of_label = prediction.variance.gather(1, prediction.label[:, None])
                variance[i].append(of_label.flatten().cpu())
    numbers = [tally.metrics() for tally in tallies]
    return {
        "accuracy": [n["accuracy"] for n in numbers],
        "ece": [n["ece"] for n in numbers],
        "entropy": [float(tally.values()["entropy"].double().mean()) for tally in tallies],
        "variance": [float(torch.cat(v).double().mean()) if v else 0.0 for v in variance],
    }
