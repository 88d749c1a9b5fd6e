"""Where classes stand among probabilities, and what follows from it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.shapes import log_of, match_shape, sum_over_example


@dataclass(frozen=True)
class Classes:
    """Classes along dimension `dim` of the probabilities; None: every entry is the probability of 1 of its own label.

    Targets equal to `ignore_index` do not count.
    """

    dim: int | None
    ignore_index: int | None = None

    def check(self, probs: Tensor, name: str) -> None:
        """Raise where probabilities have no such dimension; `name` is the likelihood's."""
        if self.dim is None:
            return
        if not -probs.dim() <= self.dim < probs.dim() or probs.shape[self.dim] < 2:
            raise ValueError(
                f"likelihood {name!r} summarizes its outputs as probabilities of shape {tuple(probs.shape)}, which "
                f"has no classes along class_dim={self.dim}: set its class_dim to the dimension of the classes, or to "
                f"None where each number is the probability of 1 of a label of its own"
            )

    def count(self, probs: Tensor) -> int:
        """How many classes there are."""
        return 2 if self.dim is None else probs.shape[self.dim]

    def votes(self, probs: Tensor) -> Tensor:
        """(draws, ...) -> (...): how many draws vote for each class, or for 1."""
        if self.dim is None:
            return (probs > 0.5).to(probs.dtype).sum(0)
        dim = self.dim + 1 if self.dim >= 0 else self.dim  # draws stand first
        winner = probs.argmax(dim, keepdim=True)
        return torch.zeros_like(probs).scatter_(dim, winner, 1.0).sum(0)

    def label(self, probs: Tensor) -> Tensor:
        """The most probable class; −1 where that is not known, for NaN."""
        found = (probs > 0.5).long() if self.dim is None else probs.argmax(self.dim)
        return found.masked_fill(self.largest(probs).isnan(), -1)

    def largest(self, shares: Tensor) -> Tensor:
        """The share (probability, or part of the votes) of the class with the largest one."""
        return torch.maximum(shares, 1 - shares) if self.dim is None else shares.amax(self.dim)

    def entropy(self, probs: Tensor) -> Tensor:
        if self.dim is None:
            return torch.special.entr(probs) + torch.special.entr(1 - probs)
        return torch.special.entr(probs).sum(self.dim)

    def log_prob(self, probs: Tensor, target: Tensor) -> Tensor:
        """log of the probability of the target, training's class weights left out: (batch,)."""
        floor = torch.finfo(probs.dtype).tiny
        log_probs = probs.clamp_min(floor).log()
        if self.dim is None:
            target = match_shape(probs, target)
            return sum_over_example(target * log_probs + (1 - target) * (1 - probs).clamp_min(floor).log())
        log_probs = log_probs.movedim(self.dim, 1)
        if target.is_floating_point():
            return sum_over_example((target.movedim(self.dim, 1) * log_probs).sum(1))
        ignored = -100 if self.ignore_index is None else self.ignore_index
        return -sum_over_example(F.nll_loss(log_probs, target, ignore_index=ignored, reduction="none"))

    def tempered(self, probs: Tensor, temperature: float, leading: int = 0) -> Tensor:
        """p^(1/T), normalised over classes; `leading` dimensions, of draws, stand in front."""
        if self.dim is None:
            return ((log_of(probs) - log_of(1 - probs)) / temperature).sigmoid().to(probs.dtype)
        dim = self.dim + leading if self.dim >= 0 else self.dim
        return (log_of(probs) / temperature).softmax(dim).to(probs.dtype)

    def rows(self, values: Tensor) -> Tensor:
        """(positions, classes); of labels the classes 0 and 1."""
        if self.dim is None:
            return torch.stack([1 - values, values], -1).reshape(-1, 2)
        return values.movedim(self.dim, -1).flatten(0, -2)

    def indices(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Class indices (positions,), and which of them count."""
        if self.dim is None and not torch.equal(target, target.round()):
            raise ValueError("target holds probabilities: evaluate needs labels, 0 or 1")
        if self.dim is not None and target.is_floating_point():
            raise ValueError(
                "target holds class probabilities: evaluate needs class indices (target.argmax(1))"
            )
        target = target.reshape(-1).long()
        ignored = self.ignore_index
        return target, torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored

    def target(self, probs: Tensor, target: Tensor) -> Tensor:
        """The target of these probabilities: labels, or probabilities, of their shape, or class indices without the
        dimension of the classes; raises on a wrong shape or range."""
        if self.dim is None or target.is_floating_point():
            return match_shape(probs, target).to(probs.dtype)
        target, classes = match_shape(probs.select(self.dim, 0), target).long(), self.count(probs)
        counted = target if self.ignore_index is None else target[target != self.ignore_index]
        if counted.numel() and not 0 <= int(counted.min()) <= int(counted.max()) < classes:
            raise ValueError(
                f"target holds classes {int(counted.min())} to {int(counted.max())}, but {classes} are predicted: "
                f"classes must lie in 0..{classes - 1}"
            )
        return target

    def one_hot(self, target: Tensor, probs: Tensor) -> Tensor:
        """The target as probabilities of the shape of `probs`."""
        if self.dim is None or target.is_floating_point():
            return match_shape(probs, target).to(probs.dtype)
        return F.one_hot(target, self.count(probs)).movedim(-1, self.dim).to(probs.dtype)
