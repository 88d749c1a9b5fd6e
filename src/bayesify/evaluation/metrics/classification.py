"""How good the probabilities are. Probabilities: (examples, classes); targets: (examples,) class indices.

`correct`, `surprise` and `squared_error` give one number per example; the metrics are their means.
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
