"""Accuracy against the share of weights set to zero (paper 3, Fig. 2)."""

from typing import Any

import numpy as np
import torch
from torch import nn

from bayesify.evaluation import tally_of
from bayesify.suites.adversarial import plain
from bayesify.suites.subject import Outcome, Subject

SHARES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def compression(subject: Subject) -> Outcome:
    """Weights pruned by size over the whole network, without training again."""
    from bayesify.compress import pruning_curve

    subject.classifies("compression")

    def accuracy(model: Any) -> float:
        tally, _ = tally_of(
            model, subject.batches(subject.test), subject.num_draws, subject.num_bins, subject.generator()
        )
        return tally.metrics()["accuracy"]

    _check(plain(subject.model))
    curve = pruning_curve(plain(subject.model), accuracy, SHARES)
    values = [point.value for point in curve]
    metrics = {f"pruned_{round(100 * share)}/accuracy": values[SHARES.index(share)] for share in (0.5, 0.9)}
    return Outcome(metrics, {"share": np.array(SHARES), "accuracy": np.array(values)})


def _check(model: nn.Module) -> None:
    """Does pruning reach what predictions are made of? Stored draws and members have weights of their own."""
    from bayesify.compress import prune

    pruned: Any = prune(model, 0.5)
    for seed in range(3):
        net = pruned.draw(generator=torch.Generator(_device(model)).manual_seed(seed))
        weights = [p.detach().flatten() for p in net.parameters() if p.dim() > 1]
        if float((torch.cat(weights).abs() < 1e-9).double().mean()) < 0.25:
            raise ValueError(
                f"suite 'compression': pruning does not reach the draws of method {model.method.name!r}"  # type: ignore[union-attr]
            )


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
