"""Accuracy against the share of weights set to zero (paper 3, Fig. 2)."""

import numpy as np

from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable

SHARES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def compression_suite(subject: Subject) -> Outcome:
    """Weights pruned by size over the whole network, without training again."""
    from bayesify.studies.compress import pruning_curve

    subject.classifies("compression")
    if not subject.module.posterior.is_around_net:
        raise Unsuitable(
            f"suite 'compression' prunes one set of weights; method {subject.module.method.name!r} has several: "
            f"use it on point, mc_vi, vdp or variance"
        )

    curve = pruning_curve(subject.module, lambda model: subject.tally(model).metrics()["accuracy"], SHARES)
    values = [point.value for point in curve]
    metrics = {f"pruned_{round(100 * share)}/accuracy": values[SHARES.index(share)] for share in (0.5, 0.9)}
    return Outcome(metrics, {"share": np.array(SHARES), "accuracy": np.array(values)})
