"""Does a confidence of 80 % mean right in 80 % of cases? Top-label, bins of equal width."""

from typing import NamedTuple

import torch
from torch import Tensor


class Bins(NamedTuple):
    """A reliability curve: per bin the number of examples, their mean confidence and accuracy."""

    size: Tensor
    confidence: Tensor
    accuracy: Tensor


def reliability(probs: Tensor, target: Tensor, num_bins: int = 15) -> Bins:
    """Sort examples by confidence into (0, 1/B], (1/B, 2/B], ...; an empty bin has zeros."""
    confidence, label = probs.double().max(1)
    correct = (label == target).double()
    edges = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64, device=probs.device)
    index = (torch.bucketize(confidence, edges) - 1).clamp(0, num_bins - 1)
    zeros = torch.zeros(num_bins, dtype=torch.float64, device=probs.device)
    count = zeros.index_add(0, index, torch.ones_like(confidence))
    total = count.clamp_min(1)
    return Bins(
        count, zeros.index_add(0, index, confidence) / total, zeros.index_add(0, index, correct) / total
    )


def ece(probs: Tensor, target: Tensor, num_bins: int = 15) -> Tensor:
    """Expected calibration error: Σ_b (n_b / n) |accuracy_b − confidence_b|."""
    bins = reliability(probs, target, num_bins)
    return (bins.size / bins.size.sum() * (bins.accuracy - bins.confidence).abs()).sum()


def mce(probs: Tensor, target: Tensor, num_bins: int = 15) -> Tensor:
    """Maximum calibration error: the largest gap of any bin."""
    bins = reliability(probs, target, num_bins)
    return (bins.accuracy - bins.confidence).abs().max()
