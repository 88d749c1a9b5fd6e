"""Accuracy and size of the set of examples on which most draws agree (paper 1, Fig. 7 and 8)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

#: thresholds of Table 2 of paper 1
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class ConfidenceSets(NamedTuple):
    """Per threshold: share of examples in the set, and the share of right answers there (NaN if empty)."""

    threshold: Tensor
    size: Tensor
    accuracy: Tensor


def confidence_sets(
    share: Tensor, correct: Tensor, thresholds: Sequence[float] | Tensor = THRESHOLDS
) -> ConfidenceSets:
    """The sets {share of draws for the majority class ≥ threshold}.

    Args:
        share: (N,) share of the draws that vote for the class with most votes (`Predictive.agreement`).
        correct: (N,) 1 where that class is the target, else 0.

    >>> sets = confidence_sets(torch.tensor([0.5, 1.0]), torch.tensor([0, 1]), [0.5, 0.9])
    >>> sets.size.tolist(), sets.accuracy.tolist()
    ([1.0, 0.5], [0.5, 1.0])
    """
    levels = torch.as_tensor(thresholds, dtype=torch.float64, device=share.device)
    order = share.double().argsort(descending=True)
    ordered, right = share.double()[order], correct.double()[order].cumsum(0)
    # shares are multiples of 1 / draws in single precision: 0.9 must count 27 of 30 votes
    inside = torch.searchsorted(-ordered, -levels + 1e-6, right=True)  # how many are in each set
    hits = torch.cat([right.new_zeros(1), right])[inside]
    accuracy = torch.where(inside > 0, hits / inside.clamp_min(1), torch.nan)
    return ConfidenceSets(levels, inside / max(len(share), 1), accuracy)
