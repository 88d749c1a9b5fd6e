"""Metrics of a whole data set, batch by batch: memory for a few numbers per example, not for probabilities."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.evaluation.metrics import calibration, classification, selective
from bayesify.evaluation.metrics.registry import measured, reported
from bayesify.evaluation.metrics.selective import ConfidenceSets, confidence_sets
from bayesify.predict.predictive import Predictive, concatenate


class Tally(ABC):
    """Numbers per example, and from them the metrics of a task, read at any time.

    keep_whole: keep the predictions too, for metrics that are functions of the whole set (`needs_whole` says whether
        there are any); without it these are left out.
    """

    task: ClassVar[str]

    def __init__(self, keep_whole: bool = False) -> None:
        self._parts: list[dict[str, Tensor]] = []
        self._whole: list[Any] | None = [] if keep_whole else None

    def _keep(self, values: dict[str, Tensor], whole: Any) -> None:
        self._parts.append({key: value.detach().cpu() for key, value in values.items()})
        if self._whole is not None:
            self._whole.append(whole.detach().cpu() if isinstance(whole, Tensor) else whole.to("cpu"))

    def __len__(self) -> int:
        return sum(len(part["target"]) for part in self._parts)

    def values(self) -> dict[str, Tensor]:
        """name -> (N, ...): the numbers kept per example."""
        if len(self) == 0:
            raise ValueError("nothing to evaluate: no example was added")
        if len(self._parts) > 1:
            joined = {key: torch.cat([part[key] for part in self._parts]) for key in self._parts[0]}
            self._parts = [joined]
        return dict(self._parts[0])

    def mean(self, key: str) -> Tensor | None:
        """The mean over the examples; None where nothing was kept under this name."""
        value = self.values().get(key)
        return None if value is None else value.double().mean()

    def metrics(self) -> dict[str, float]:
        """The metrics of the registry that are reported for this task."""
        found: dict[str, Any] = {}
        for name, metric in reported(self.task).items():
            way = getattr(metric, self.task)
            if way is True:
                if self._whole is not None:
                    found[name] = measured(name, self._predictions(), self.values()["target"])
                continue
            value = self.mean(way) if isinstance(way, str) else way(self)
            if value is not None:
                found[name] = float(value)
        return found

    @abstractmethod
    def _predictions(self) -> Any:
        """Of the whole set, as metrics take them."""


class RegressionTally(Tally):
    """Add batches, read the metrics at any time."""

    task = "regression"

    def add(self, prediction: Predictive, target: Tensor, **each: Tensor) -> None:
        """One batch: target (N, ...), and numbers per example or per target, e.g. nll and crps."""
        self._keep({"mean": prediction.mean, "target": target, **each}, prediction)

    def _predictions(self) -> Predictive:
        assert self._whole is not None
        return concatenate(self._whole)


class ClassificationTally(Tally):
    """Add batches, read the metrics at any time.

    Per example it keeps a handful of numbers (`values`), in float64 on the CPU; of the probabilities only
    sums per class and bin.

    >>> tally = ClassificationTally(num_bins=15)
    >>> tally.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    >>> tally.metrics()["accuracy"]
    0.5
    """

    task = "classification"

    def __init__(self, num_bins: int = 15, keep_whole: bool = False) -> None:
        super().__init__(keep_whole)
        self.num_bins = num_bins
        self._classwise: Tensor | None = None

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
            part["disagreement"] = classification.disagreement(votes, num_draws)
        self._keep(part, probs)
        sums = calibration.classwise_sums(probs, target, self.num_bins).cpu()
        self._classwise = sums if self._classwise is None else self._classwise + sums

    @property
    def classwise(self) -> Tensor:
        """(3, classes, bins): `calibration.classwise_sums` of all examples."""
        assert self._classwise is not None
        return self._classwise

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

    def _predictions(self) -> Tensor:
        assert self._whole is not None
        return torch.cat(self._whole)
