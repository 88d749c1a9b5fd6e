"""Does a confidence of 80 % mean right in 80 % of cases?

Bins of equal width are (0, 1/B], (1/B, 2/B], …; bins of equal mass hold about equally many examples.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesify.checks import Count, checked


class Bins(NamedTuple):
    """A reliability curve: per bin the number of examples, their mean confidence and accuracy."""

    size: Tensor
    confidence: Tensor
    accuracy: Tensor


@checked
def reliability(probs: Tensor, target: Tensor, num_bins: Count = 15, equal_mass: bool = False) -> Bins:
    """Examples sorted into bins by the probability of the predicted class; an empty bin has zeros."""
    confidence, label = probs.double().max(1)
    return binned(confidence, (label == target).double(), num_bins, equal_mass)


@checked
def binned(confidence: Tensor, correct: Tensor, num_bins: Count = 15, equal_mass: bool = False) -> Bins:
    """The curve of stored confidences (N,) and right answers (N,), 1 or 0."""
    confidence, correct = confidence.double(), correct.double()
    index = bin_index(confidence, edges_of(confidence, num_bins, equal_mass))
    parts = (torch.ones_like(correct), confidence, correct)
    size, total, right = (sums_by(index, part, num_bins) for part in parts)
    divisor = size.clamp_min(1)
    return Bins(size, total / divisor, right / divisor)


@checked
def ece(probs: Tensor, target: Tensor, num_bins: Count = 15, min_size: Count = 1) -> Tensor:
    """Expected calibration error of the predicted class: Σ_b (n_b / n) |accuracy_b − confidence_b|.

    min_size: bins with fewer examples are left out, n stays (paper 2, D.2: num_bins=20, min_size=6).
    """
    return mean_gap(reliability(probs, target, num_bins), min_size)


@checked
def mce(probs: Tensor, target: Tensor, num_bins: Count = 15, min_size: Count = 1) -> Tensor:
    """Maximum calibration error: the largest gap of any bin with at least `min_size` examples."""
    return largest_gap(reliability(probs, target, num_bins), min_size)


@checked
def adaptive_ece(probs: Tensor, target: Tensor, num_bins: Count = 15) -> Tensor:
    """Expected calibration error over bins of equal mass; equal confidences share a bin."""
    return mean_gap(reliability(probs, target, num_bins, equal_mass=True))


@checked
def classwise_ece(probs: Tensor, target: Tensor, num_bins: Count = 15) -> Tensor:
    """Mean over classes c of Σ_b (n_b / n) |share of class c in bin b − mean p_c in bin b|."""
    return classwise_mean(classwise_sums(probs, target, num_bins))


# -- parts, also used by the streaming tallies ---------------------------------------------------------------
def mean_gap(bins: Bins, min_size: int = 1) -> Tensor:
    """Σ_b (n_b / n) |accuracy_b − confidence_b| over bins of at least `min_size` examples."""
    kept = bins.size >= max(min_size, 1)
    gaps = (bins.accuracy - bins.confidence).abs() * kept
    return (bins.size / bins.size.sum().clamp_min(1) * gaps).sum()


def largest_gap(bins: Bins, min_size: int = 1) -> Tensor:
    """max_b |accuracy_b − confidence_b| over bins of at least `min_size` examples."""
    return ((bins.accuracy - bins.confidence).abs() * (bins.size >= max(min_size, 1))).max()


@checked
def classwise_sums(probs: Tensor, target: Tensor, num_bins: Count = 15) -> Tensor:
    """(3, classes, bins): examples, sums of p_c and hits of class c; sums of several batches add up."""
    probs = probs.double()
    classes = probs.shape[1]
    index = bin_index(probs, edges_of(probs, num_bins, False))  # (N, classes)
    index = (index + num_bins * torch.arange(classes, device=probs.device)).flatten()
    hit = torch.nn.functional.one_hot(target, classes).double().flatten()
    parts = (torch.ones_like(hit), probs.flatten(), hit)
    return torch.stack([sums_by(index, p, classes * num_bins).view(classes, num_bins) for p in parts])


def classwise_mean(sums: Tensor) -> Tensor:
    """The classwise ECE of `classwise_sums`."""
    size, confidence, hits = sums
    return ((confidence - hits).abs().sum(1) / size.sum(1).clamp_min(1)).mean()


def edges_of(values: Tensor, num_bins: int, equal_mass: bool) -> Tensor:
    """The inner edges (num_bins − 1,): equal steps, or quantiles of `values`."""
    levels = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64, device=values.device)[1:-1]
    if not equal_mass or len(values) == 0:
        return levels
    ordered = values.double().sort().values
    place = levels * (len(ordered) - 1)
    low = place.long()
    return torch.lerp(ordered[low], ordered[(low + 1).clamp_max(len(ordered) - 1)], place - low)


def bin_index(values: Tensor, edges: Tensor) -> Tensor:
    """The bin of each value: a value on an edge belongs to the bin below it."""
    return torch.bucketize(values.contiguous(), edges)


def sums_by(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Σ of the values with each index, (size,)."""
    return torch.zeros(size, dtype=torch.float64, device=values.device).index_add(0, index, values)
