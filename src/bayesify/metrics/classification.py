"""How good the probabilities are. Probabilities: (examples, classes); targets: (examples,) class indices."""

import torch
from torch import Tensor


def accuracy(probs: Tensor, target: Tensor) -> Tensor:
    """Share of examples whose most probable class is the target."""
    return (probs.argmax(1) == target).double().mean()


def nll(probs: Tensor, target: Tensor) -> Tensor:
    """Mean −log p(target), in nats; a probability of 0 counts as 1.2e-38 (87.3 nats)."""
    picked = probs.double().gather(1, target[:, None]).squeeze(1)
    return -picked.clamp_min(torch.finfo(torch.float32).tiny).log().mean()


def brier(probs: Tensor, target: Tensor) -> Tensor:
    """Mean squared distance to the one-hot target, summed over classes (0 to 2)."""
    probs = probs.double()
    picked = probs.gather(1, target[:, None]).squeeze(1)
    return (probs.square().sum(1) - 2 * picked + 1).mean()
