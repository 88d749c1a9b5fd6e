"""Metrics of a whole data set, batch by batch: memory for a few numbers per example, not for probabilities."""

import torch
from torch import Tensor

from bayesify.evaluation.metrics import calibration, classification, selective, uncertainty
from bayesify.evaluation.metrics.confidence import ConfidenceSets, confidence_sets


class ClassificationTally:
    """Add batches, read the metrics at any time; tallies of several processes merge.

    Per example it keeps a handful of numbers (`values`), in float64 on the CPU; of the probabilities only
    sums per class and bin.

    >>> tally = ClassificationTally(num_bins=15)
    >>> tally.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    >>> tally.metrics()["accuracy"]
    0.5
    """

    def __init__(self, num_bins: int = 15) -> None:
        self.num_bins = num_bins
        self._parts: list[dict[str, Tensor]] = []
        self._classwise: Tensor | None = None
        self._num_classes = 0

    def add(
        self,
        probs: Tensor,
        target: Tensor,
        votes: Tensor | None = None,
        num_draws: int = 1,
        **extra: Tensor,
    ) -> None:
        """One batch.

        Args:
            probs: (N, classes) averaged over draws.
            target: (N,) class indices.
            votes: (N, classes) share of draws for each class; without it every draw votes as `probs` do.
            extra: further numbers per example, (N,) each, e.g. entropy.
        """
        confidence, label = probs.double().max(1)
        part = {
            "label": label,
            "target": target,
            "confidence": confidence,
            "correct": classification.correct(probs, target),
            "nll": classification.surprise(probs, target),
            "brier": classification.squared_error(probs, target),
            **extra,
        }
        if probs.shape[1] > 10:
            part["top5"] = classification.correct(probs, target, k=5)
        if votes is not None:
            agreement, majority = votes.max(1)
            part |= {"agreement": agreement, "majority_correct": majority == target}
            part["disagreement"] = uncertainty.disagreement(votes, num_draws)
        self._parts.append({key: value.detach().cpu() for key, value in part.items()})
        sums = calibration.classwise_sums(probs, target, self.num_bins).cpu()
        self._classwise = sums if self._classwise is None else self._classwise + sums
        self._num_classes = probs.shape[1]

    def merge(self, other: "ClassificationTally") -> None:
        """Take over the examples of another tally."""
        if other.num_bins != self.num_bins:
            raise ValueError(f"num_bins={other.num_bins} of the other tally must be {self.num_bins}")
        self._parts += other._parts
        if other._classwise is not None:
            mine = self._classwise
            self._classwise = other._classwise if mine is None else mine + other._classwise
            self._num_classes = other._num_classes

    def __len__(self) -> int:
        return sum(len(part["target"]) for part in self._parts)

    def values(self) -> dict[str, Tensor]:
        """name -> (N,): the numbers kept per example."""
        if len(self) == 0:
            raise ValueError("nothing to evaluate: no example was added")
        return {key: torch.cat([part[key] for part in self._parts]) for key in self._parts[0]}

    def metrics(self) -> dict[str, float]:
        """The conventional metrics; ece and its relatives over `num_bins` bins."""
        v = self.values()
        assert self._classwise is not None
        bins = calibration.binned(v["confidence"], v["correct"], self.num_bins)
        mass = calibration.binned(v["confidence"], v["correct"], self.num_bins, equal_mass=True)
        wrong = 1 - v["correct"]
        result = {
            "accuracy": v["correct"].mean(),
            "top5_accuracy": v["top5"].mean() if "top5" in v else None,
            "nll": v["nll"].mean(),
            "brier": v["brier"].mean(),
            "ece": calibration.mean_gap(bins),
            "mce": calibration.largest_gap(bins),
            "adaptive_ece": calibration.mean_gap(mass),
            "classwise_ece": calibration.classwise_mean(self._classwise),
            "aurc": selective.aurc(-v["confidence"], wrong),
            "confidence": v["confidence"].mean(),
            "disagreement": v["disagreement"].mean() if "disagreement" in v else None,
        }
        return {key: float(value) for key, value in result.items() if value is not None}

    def reliability(self, equal_mass: bool = False, num_bins: int | None = None) -> calibration.Bins:
        """The reliability curve, over other bins if wanted."""
        v = self.values()
        bins = self.num_bins if num_bins is None else num_bins
        return calibration.binned(v["confidence"], v["correct"], bins, equal_mass)

    def risk_coverage(self) -> selective.RiskCoverage:
        """The share of wrong answers among the most confident ones."""
        v = self.values()
        return selective.risk_coverage(-v["confidence"], 1 - v["correct"])

    def confidence_sets(self, thresholds: Tensor) -> ConfidenceSets:
        """Size and accuracy of the sets on which at least a share of the draws agrees; needs votes."""
        v = self.values()
        if "agreement" not in v:
            raise ValueError("confidence sets need votes: give add(..., votes=prediction.votes)")
        return confidence_sets(v["agreement"], v["majority_correct"], thresholds)
