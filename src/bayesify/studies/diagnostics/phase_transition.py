"""When and where a variance network leaves its means behind: a recorder for training (paper 5, Sections 4.1 and 6.4).

In a plain loop call `recorder.record(model, epoch)` after every epoch; `bf.fit(..., on_epoch=recorder.record)` does.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesify.atomic import read_json, write_text
from bayesify.evaluation.evaluate import evaluate, inference_modes
from bayesify.model import BayesianModule
from bayesify.predict.prediction import MODES
from bayesify.studies.diagnostics.curvature import kappa
from bayesify.studies.diagnostics.variance import log_alpha, variance_posterior

LOG_KAPPA_0 = 1.5  # log₁₀ of the threshold of κ (Fig. 3)
EDGES = tuple(x / 4 for x in range(-100, 41))  # bins of log₁₀ κ: −25 … 10


@dataclass
class Row:
    """One epoch. Dictionaries are by the name of the random weight."""

    epoch: int
    deterministic: float  # accuracy at the means
    stochastic: float  # of one draw
    ensemble: float  # of the average over draws
    log_alpha: dict[str, float]  # mean over the weights
    without_noise: dict[str, float] = field(default_factory=dict)  # ensemble accuracy, weight at its mean
    num_above: dict[str, int] = field(default_factory=dict)  # weights with κ above κ₀
    histogram: dict[str, list[int]] = field(default_factory=dict)  # counts of log₁₀ κ over EDGES


class PhaseTransition(NamedTuple):
    """The first epoch from which on the means alone predict at less than half of what the ensemble has over chance,
    and the layers whose noise is needed for that; epoch None where it did not happen."""

    epoch: int | None
    layers: tuple[str, ...]

    def __str__(self) -> str:
        if self.epoch is None:
            return "no phase transition: the mean network predicts like the ensemble"
        return f"phase transition at epoch {self.epoch} in {', '.join(self.layers) or 'no single layer'}"


class PhaseRecorder:
    """Records log α, κ and the accuracies of the inference modes after every epoch.

    loader:     labelled data for the accuracies; kappa_loader: data for κ (None leaves κ out; its sum grows with the
                number of examples, the paper's threshold is for the training set)
    num_draws:  of the ensemble; probes: of the curvature where it has no closed form
    every:      epochs between measurements of κ and of the accuracy without each layer's noise
    path:       a JSON file that is written after every epoch and read first if it is there, so that a run may resume
    """

    def __init__(
        self,
        loader: Iterable[Any],
        kappa_loader: Iterable[Any] | None = None,
        num_draws: int = 10,
        num_probes: int = 8,
        every: int = 1,
        path: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        self.loader, self.kappa_loader = loader, kappa_loader
        self.num_draws, self.num_probes, self.every = num_draws, num_probes, every
        self.path = None if path is None else Path(path)
        self.seed = seed
        self.rows: list[Row] = []
        if self.path is not None and self.path.exists():
            try:
                self.rows = [Row(**row) for row in read_json(self.path)]
            except TypeError as error:
                raise ValueError(f"{self.path} is damaged ({error}): delete it to begin anew") from None

    def record(self, model: BayesianModule, epoch: int) -> dict[str, float]:
        """Measure now; returns the plain numbers, for a history. The global random state stays as it is."""
        device = next(model.parameters()).device
        generator = Generator(device).manual_seed(self.seed)
        modes = inference_modes(model, self.loader, self.num_draws, generator)
        accuracies = {mode: metrics["accuracy"] for mode, metrics in modes.items()}
        means = {name: float(values.mean()) for name, values in log_alpha(model).items()}
        det, one, many = (accuracies[mode] for mode in MODES)
        row = Row(epoch, det, one, many, log_alpha=means)
        if epoch % self.every == 0:
            for name in row.log_alpha:
                gate = variance_posterior(model).random_tensor(name)._buffers.get("noise_gate")
                if gate is not None:  # zero-mean families have none
                    with closed(gate):
                        metrics = evaluate(model, self.loader, self.num_draws, generator=generator)
                    row.without_noise[name] = metrics["accuracy"]
            if self.kappa_loader is not None:
                found = kappa(model, self.kappa_loader, num_probes=self.num_probes, generator=generator)
                for name, values in found.items():
                    row.num_above[name] = int((values > 10**LOG_KAPPA_0).sum())
                    row.histogram[name] = histogram(values)
        self.rows = [old for old in self.rows if old.epoch < epoch] + [row]
        if self.path is not None:
            write_text(self.path, json.dumps([asdict(r) for r in self.rows]))
        return {f"{mode}_accuracy": value for mode, value in accuracies.items()}

    def transition(self, chance: float = 0.1) -> PhaseTransition:
        """Name the epoch and the layers. chance: the accuracy of guessing."""
        epoch = epoch_of_transition(self.rows, chance)
        if epoch is None:
            return PhaseTransition(None, ())
        last = next((row for row in reversed(self.rows) if row.without_noise), self.rows[-1])
        names = [name for name, a in last.without_noise.items() if _fallen(a, last.ensemble, chance)]
        return PhaseTransition(epoch, tuple(names))


def epoch_of_transition(rows: Sequence[Row], chance: float = 0.1) -> int | None:
    """The first epoch from which on the means alone have lost what the ensemble predicts."""
    epoch = None
    for row in reversed(rows):
        if not _fallen(row.deterministic, row.ensemble, chance):
            break
        epoch = row.epoch
    return epoch


def _fallen(accuracy: float, ensemble: float, chance: float) -> bool:
    """Is less than half left of what the ensemble has over chance?"""
    return ensemble > 2 * chance and accuracy - chance < 0.5 * (ensemble - chance)


@contextmanager
def closed(gate: Tensor) -> Iterator[None]:
    """The gate of a weight's noise at zero while the context lasts: the weight is at its mean."""
    old = gate.clone()
    gate.zero_()
    try:
        yield
    finally:
        gate.copy_(old)


def histogram(values: Tensor, edges: tuple[float, ...] = EDGES) -> list[int]:
    """Counts of log₁₀ κ between the edges; values beyond an end count in the outermost bin."""
    logs = values.flatten().double().log10().clamp(edges[0], math.nextafter(edges[-1], 0))
    counts = torch.histc(logs.float().cpu(), len(edges) - 1, edges[0], edges[-1])
    return [int(c) for c in counts.tolist()]
