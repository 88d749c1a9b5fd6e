"""How good the probabilities are, and what the draws say about their own certainty.

Probabilities: (examples, classes); targets: (examples,) class indices; samples: (draws, examples, classes). `correct`,
`surprise` and `squared_error` give one number per example; the metrics are their means.
"""

import torch
from torch import Tensor


def correct(probs: Tensor, target: Tensor, k: int = 1) -> Tensor:
    """1 where the target is among the `k` most probable classes, else 0; of equal ones the first counts."""
    if not 1 <= k <= probs.shape[1]:
        raise ValueError(f"k={k!r} must lie in 1 … {probs.shape[1]}, the number of classes")
    if k == 1:
        return (probs.argmax(1) == target).double()
    picked = probs.gather(1, target[:, None])
    before = torch.arange(probs.shape[1], device=probs.device) < target[:, None]
    rank = ((probs > picked) | ((probs == picked) & before)).sum(1)
    return (rank < k).double()


def surprise(probs: Tensor, target: Tensor) -> Tensor:
    """−log p(target) in nats; a probability of 0 counts as 1.2e-38 (87.3 nats)."""
    picked = probs.double().gather(1, target[:, None]).squeeze(1)
    return -picked.clamp_min(torch.finfo(torch.float32).tiny).log()


def squared_error(probs: Tensor, target: Tensor) -> Tensor:
    """Squared distance to the one-hot target, summed over classes: Σ_c p_c² − 2 p_target + 1."""
    probs = probs.double()
    picked = probs.gather(1, target[:, None]).squeeze(1)
    return probs.square().sum(1) - 2 * picked + 1


def accuracy(probs: Tensor, target: Tensor) -> Tensor:
    """Share of examples whose most probable class is the target."""
    return correct(probs, target).mean()


def top5_accuracy(probs: Tensor, target: Tensor) -> Tensor:
    """Share of examples whose target is among the five most probable classes."""
    return correct(probs, target, k=5).mean()


def nll(probs: Tensor, target: Tensor) -> Tensor:
    """Mean −log p(target), in nats; a probability of 0 counts as 1.2e-38 (87.3 nats)."""
    return surprise(probs, target).mean()


def brier(probs: Tensor, target: Tensor) -> Tensor:
    """Mean squared distance to the one-hot target, summed over classes (0 to 2)."""
    return squared_error(probs, target).mean()


def mean_confidence(probs: Tensor) -> Tensor:
    """Mean probability of the most probable class."""
    return probs.double().amax(1).mean()


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
