"""Where a variance network keeps what it learned: in the means or in the variances (paper 5)."""

import numpy as np
import torch

from bayesify.evaluation.evaluate import inference_modes
from bayesify.posteriors.variance import VarianceFactorized
from bayesify.studies.diagnostics import kappa, log_alpha
from bayesify.studies.diagnostics.phase_transition import EDGES, LOG_KAPPA_0, histogram
from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable

MOST_EXAMPLES = 1000  # for κ


def variance_suite(subject: Subject) -> Outcome:
    """Of variance networks: accuracy of the mean network, of one draw and of the ensemble; log α and κ of each weight.

    κ (eq. 16) is a sum over training examples; here it is taken over at most 1,000 test examples and scaled to the
    number of training examples.
    """
    subject.classifies("variance")
    model = subject.module
    if not isinstance(model.posterior, VarianceFactorized):
        raise Unsuitable(
            f"suite 'variance' is for variance networks; this run is by method {model.method.name!r}: "
            f"train with --method variance"
        )
    batches = list(subject.batches(subject.test))
    modes = inference_modes(model, batches, subject.num_draws, subject.generator())
    metrics = {f"{mode}/accuracy": numbers["accuracy"] for mode, numbers in modes.items()}
    part = subject.first(MOST_EXAMPLES)
    found = kappa(model, subject.batches(part), generator=subject.generator())
    scale = (len(part) if model.num_data is None else model.num_data) / len(part)
    arrays = {"edges": np.array(EDGES), "threshold": np.array(LOG_KAPPA_0)}
    above = 0
    for name, values in found.items():
        scaled = scale * values.detach()
        above += int((scaled > 10**LOG_KAPPA_0).sum())
        arrays[f"kappa_{name}"] = np.array(histogram(scaled))
    alphas = torch.cat([values.flatten() for values in log_alpha(model).values()]).double()
    metrics |= {
        "log_alpha": float(alphas.mean()),
        "kappa_above": above / sum(values.numel() for values in found.values()),
    }
    return Outcome(metrics, arrays)
