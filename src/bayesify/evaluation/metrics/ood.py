"""Telling inputs of another kind from known ones by a score; out of distribution is the positive class.

Scores grow with uncertainty: entropy, mutual information, 1 − confidence, … Equal scores count half
(AUROC) or enter together (AUPR, FPR).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesify.checks import Fraction, checked


class Operating(NamedTuple):
    """Per distinct threshold, falling: how many of the known and of the other inputs score at least that."""

    false: Tensor
    true: Tensor


def auroc(inside: Tensor, outside: Tensor) -> Tensor:
    """P(score outside > score inside) + ½ P(equal): 0.5 is chance."""
    points = operating_points(inside, outside)
    zero = points.true.new_zeros(1)
    rate_false = torch.cat([zero, points.false]) / len(inside)
    rate_true = torch.cat([zero, points.true]) / len(outside)
    return torch.trapezoid(rate_true, rate_false)


def aupr(inside: Tensor, outside: Tensor) -> Tensor:
    """Average precision: Σ over thresholds of (recall − recall before) · precision."""
    points = operating_points(inside, outside)
    precision = points.true / (points.true + points.false)
    recall = torch.cat([points.true.new_zeros(1), points.true]) / len(outside)
    return (recall.diff() * precision).sum()


@checked
def fpr95(inside: Tensor, outside: Tensor, recall: Fraction = 0.95) -> Tensor:
    """Share of known inputs flagged when at least `recall` of the others are."""
    points = operating_points(inside, outside)
    enough = points.true >= recall * len(outside) - 1e-9
    return points.false[enough.nonzero()[0, 0]] / len(inside)


def operating_points(inside: Tensor, outside: Tensor) -> Operating:
    """Counts at every distinct score, from the largest down; the last one flags everything."""
    for name, scores in (("inside", inside), ("outside", outside)):
        if scores.dim() != 1 or len(scores) == 0:
            raise ValueError(
                f"{name} has shape {tuple(scores.shape)}: give one score per example, at least one"
            )
        if scores.isnan().any():
            raise ValueError(f"{name} holds NaN: a score must be a number")
    scores = torch.cat([inside.double(), outside.double()])
    positive = torch.cat([torch.zeros_like(inside, dtype=torch.float64), torch.ones_like(outside).double()])
    order = scores.argsort(descending=True)
    scores, positive = scores[order], positive[order]
    last = torch.cat([scores[1:] != scores[:-1], scores.new_ones(1, dtype=torch.bool)])  # of equal scores
    true = positive.cumsum(0)[last]
    count = torch.arange(1, len(scores) + 1, dtype=torch.float64, device=scores.device)[last]
    return Operating(count - true, true)
