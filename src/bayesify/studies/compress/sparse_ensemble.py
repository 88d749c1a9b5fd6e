"""Sparse ensembles: only weights whose noise matters keep it, others are zero or stay at their mean (paper 5, 6.4).

The gates of the families of variance networks (families/variance.py) hold which weights are kept; prediction,
`bf.save` and the mean network all follow them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesify.checks import Count, checked
from bayesify.evaluation.evaluate import evaluate
from bayesify.model import BayesianModule
from bayesify.names import check_choice
from bayesify.studies.diagnostics.variance import log_alpha, variance_posterior

FILLS = ("zero", "mean")
#: shares of the weights that the default thresholds cut
SPARSITIES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


class SparsityPoint(NamedTuple):
    """A sparse ensemble: what its threshold leaves random, and how good it is."""

    threshold: float
    kept: int  # weights that are still random
    total: int
    accuracy: float

    @property
    def sparsity(self) -> float:
        """The share of the weights that are not random any more."""
        return 1 - self.kept / self.total

    @property
    def compression(self) -> float:
        """How many weights there are for each random one."""
        return self.total / max(self.kept, 1)


@checked
def sparsify(
    model: BayesianModule, scores: Mapping[str, Tensor], threshold: float, fill: str = "zero"
) -> int:
    """Keep the noise of weights with a score above `threshold`; returns how many those are. Changes `model`.

    scores:  κ by name (`bf.diagnostics.kappa`), or `-log_alpha` for sparse variational dropout
    fill:    the other weights become "zero", or are fixed at their "mean"

    >>> kept = sparsify(model, kappa(model, train_loader), threshold=10**1.5)
    """
    check_choice(FILLS, fill, "fill")
    posterior = variance_posterior(model)
    kept = 0
    for name, score in scores.items():
        if name not in posterior.slots:
            raise ValueError(f"scores: {name!r} is no random weight; there are {', '.join(posterior.slots)}")
        leaf = posterior.random_tensor(name)
        if "noise_gate" not in leaf._buffers:
            raise ValueError(
                f"{name!r} has the {leaf.family.name} family, which has no gates: use noise='normal'"
            )
        keep = score > threshold
        for gate in ("noise_gate", "mean_gate") if fill == "zero" else ("noise_gate",):
            leaf._buffers[gate] = leaf.get_buffer(gate) * keep
        kept += int(leaf.get_buffer("noise_gate").sum())
    return kept


@checked
def sparsify_by_log_alpha(model: BayesianModule, threshold: float = 3.0) -> int:
    """Zero every weight with log α above `threshold`: sparse variational dropout (Molchanov et al. 2017)."""
    return sparsify(model, {name: -a for name, a in log_alpha(model).items()}, -threshold)


@checked
def sparsity_curve(
    model: BayesianModule,
    scores: Mapping[str, Tensor],
    loader: Iterable[Any],
    thresholds: Sequence[float] | None = None,
    fill: str = "zero",
    num_draws: Count = 20,
    generator: Generator | None = None,
) -> list[SparsityPoint]:
    """Accuracy of the ensemble against the threshold of the score (Fig. 5). The model is left as it was.

    thresholds: without them those that cut the shares SPARSITIES of the weights
    """
    if thresholds is None:
        every = torch.cat([score.flatten() for score in scores.values()]).double().sort().values
        cuts = [int(share * len(every)) - 1 for share in SPARSITIES]
        thresholds = [float(every[cut]) if cut >= 0 else -1.0 for cut in cuts]
    total = sum(score.numel() for score in scores.values())
    points = []
    for threshold in thresholds:
        with unchanged(model):
            kept = sparsify(model, scores, threshold, fill)
            metrics = evaluate(model, loader, num_draws, generator=generator)
        points.append(SparsityPoint(float(threshold), kept, total, metrics["accuracy"]))
    return points


@contextmanager
def unchanged(model: BayesianModule) -> Iterator[None]:
    """Put the gates back afterwards."""
    posterior = variance_posterior(model)
    old = {name: dict(posterior.random_tensor(name)._buffers) for name in posterior.slots}
    try:
        yield
    finally:
        for name, buffers in old.items():
            posterior.random_tensor(name)._buffers.update(buffers)
