"""What the draws of a classifier say about their own certainty. Samples: (draws, examples, classes)."""

import torch
from torch import Tensor


def predictive_entropy(samples: Tensor) -> Tensor:
    """H(mean_s p_s) in nats, (examples,): the whole uncertainty."""
    return torch.special.entr(samples.double().mean(0)).sum(-1)


def expected_entropy(samples: Tensor) -> Tensor:
    """mean_s H(p_s) in nats, (examples,): what remains if the weights were known."""
    return torch.special.entr(samples.double()).sum(-1).mean(0)


def mutual_information(samples: Tensor) -> Tensor:
    """H(mean_s p_s) − mean_s H(p_s), (examples,): between the label and the weights (BALD)."""
    return (predictive_entropy(samples) - expected_entropy(samples)).clamp_min(0)


def disagreement(votes: Tensor, num_draws: int) -> Tensor:
    """Share of pairs of different draws that predict different classes, (examples,).

    1 − Σ_c n_c (n_c − 1) / (S (S − 1)) with n_c of the S draws for class c; 0 for a single draw.

    Args:
        votes: (examples, classes), the share of draws for each class (`Predictive.votes`).
    """
    if num_draws < 2:
        return torch.zeros(votes.shape[:-1], dtype=torch.float64, device=votes.device)
    count = votes.double() * num_draws
    same = (count * (count - 1)).sum(-1) / (num_draws * (num_draws - 1))
    return (1 - same).clamp(0, 1)
