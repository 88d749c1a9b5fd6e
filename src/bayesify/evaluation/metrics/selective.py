"""Answering only where the model is sure: by its uncertainty, or by how many draws agree (paper 1, Fig. 7 and 8).

Examples are taken from the most certain on. Equal uncertainties stand in no order: their losses enter
as their mean, which is the expectation over all orders.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesify.checks import Fraction, checked


class RiskCoverage(NamedTuple):
    """risk[i]: mean loss of the `coverage[i]` share of examples that is most certain."""

    coverage: Tensor
    risk: Tensor


def risk_coverage(uncertainty: Tensor, loss: Tensor) -> RiskCoverage:
    """The curve at coverages 1/n, 2/n, …, 1.

    Args:
        uncertainty: (N,), larger is less certain.
        loss: (N,), e.g. 1 for a wrong answer and 0 for a right one.
    """
    if uncertainty.shape != loss.shape or uncertainty.dim() != 1 or len(loss) == 0:
        raise ValueError(
            f"uncertainty {tuple(uncertainty.shape)} and loss {tuple(loss.shape)} must both be (N,), N ≥ 1"
        )
    if uncertainty.isnan().any():
        raise ValueError("uncertainty holds NaN: it must be a number")
    _, group, size = uncertainty.double().unique(return_inverse=True, return_counts=True)  # rising
    mean = torch.zeros(len(size), dtype=torch.float64, device=loss.device)
    mean = mean.index_add(0, group, loss.double()) / size
    count = torch.arange(1, len(loss) + 1, dtype=torch.float64, device=loss.device)
    risk = mean.repeat_interleave(size).cumsum(0) / count
    return RiskCoverage(count / len(loss), risk)


def aurc(uncertainty: Tensor, loss: Tensor) -> Tensor:
    """Area under the risk–coverage curve: the mean of its risks. Smaller is better."""
    return risk_coverage(uncertainty, loss).risk.mean()


@checked
def risk_at_coverage(uncertainty: Tensor, loss: Tensor, coverage: Fraction = 0.8) -> Tensor:
    """The risk when the most certain `coverage` of the examples (rounded up) is answered."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage={coverage!r} must lie in 0 … 1")
    curve = risk_coverage(uncertainty, loss)
    return curve.risk[(curve.coverage >= coverage - 1e-12).nonzero()[0, 0]]


@checked
def coverage_at_risk(uncertainty: Tensor, loss: Tensor, risk: Fraction = 0.05) -> Tensor:
    """The largest share of examples that can be answered with at most this risk; 0 where none can."""
    curve = risk_coverage(uncertainty, loss)
    allowed = curve.coverage[curve.risk <= risk]
    return allowed[-1] if len(allowed) else curve.coverage.new_zeros(())


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
