"""Laplace's approximation: N(ŵ, (H + δ)⁻¹) around trained weights, H the curvature of the loss there."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify import torch_internals as internals
from bayesify.checks import check_content
from bayesify.posteriors.base import Posterior, Says, TrainingData
from bayesify.posteriors.gaussian.curvature import Pass, curvature
from bayesify.posteriors.gaussian.evidence import Group, Noise, flat_spectrum, log_evidence, maximised
from bayesify.posteriors.gaussian.gaussian import Gaussian
from bayesify.posteriors.gaussian.precision import Precision
from bayesify.weights import Selection
from bayesify.weights.observing.watch import layer_of

MARGLIK, VALIDATION = "marglik", "validation"
HOW = {MARGLIK: "marginal likelihood", VALIDATION: "validation"}
SLACK = 0.01  # of the confidence on training examples, that a prior precision nobody chose may cost
RAISED = (
    "the prior precision of the largest marginal likelihood, {:.3g}, would make the network less sure of its training "
    "examples by more than 1 %: it was raised. With a val_loader it goes by the NLL there"
)
DECADES, HALVINGS = 8.0, 6  # by which it may be raised, and how often that is halved
STEP, FURTHEST = 0.4, 9.9
GRID = [STEP * i for i in range(-10, 11)]  # decades of the prior precisions that validation tries first
AT_END = "validation found no end to the prior precision, and {:.3g} was taken: {}"
ENDS = {
    True: "the network is best as it is, with no uncertainty of its weights",
    False: "the data hold the weights, and the prior does not matter",
}
Grouped = dict[str, list[int]]  # the blocks of every group, by number


class Laplace(Gaussian):
    """q(w) = N(ŵ, (s H + δ)⁻¹). `conclude` finds H in one pass, then δ, and the noise std of a normal likelihood.

    structure:        "diag", "kron" or "dense"
    prior_precision:  δ, or how it is found: "marglik" or "validation"; None: of classes the latter, where it can be,
                      or else at least "marglik"
    per_layer:        a δ for every layer
    find_noise:       may the noise be found? None: where nobody chose it, or it stands at 1 and is not learned
    linear:           predictions are those of the linearised network
    """

    concludes = True

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        structure: str,
        prior_precision: float | str | None = None,
        per_layer: bool = False,
        find_noise: bool | None = None,
        linear: bool = True,
    ) -> None:
        super().__init__(net, selection)
        self.structure, self.prior_precision, self.per_layer = structure, prior_precision, per_layer
        self.find_noise, self.linear = find_noise, linear
        self.needs_validation = prior_precision == VALIDATION
        self.finds_noise = find_noise is not False
        self.reasons: dict[str, str] = {}
        #: log p(D), as found last
        self.log_evidence: float | None = None
        self.versions: list[int] | None = None  # of the weights that the covariance belongs to

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "versions": None}  # a copy has tensors of its own

    @property
    def linearised(self) -> bool:  # type: ignore[override]
        return self.linear and self.covariance is not None

    def begin(
        self,
        optimizer: Any = None,
        num_steps: int | None = None,
        folder: Path | None = None,
        trained: bool = False,
    ) -> None:
        """What was found belongs to other weights."""
        self.covariance, self.reasons, self.log_evidence = None, {}, None

    def caution(self, says: Says | None = None) -> str | Warning | None:
        """Weights that a loop of one's own moved on have another covariance."""
        if self.covariance is None:
            return super().caution(says)
        if self.versions is None:
            self.versions = self._versions()
        if self.versions == self._versions():
            return None
        return (
            "the weights were changed after the covariance around them was found, which belongs to the old ones: "
            "call bf.fit(model, train_loader) again"
        )

    def _versions(self) -> list[int]:
        """Of the weights."""
        return internals.versions_of(slots[0].get() for slots in self.slots.values())

    @torch.no_grad()
    def conclude(self, net: nn.Module, data: TrainingData) -> list[str]:
        began, asked = time.perf_counter(), self.prior_precision
        if asked is None:
            can = data.score is not None and data.likelihood.task == "classification" and not self.per_layer
            asked = VALIDATION if can else MARGLIK
        self.covariance = None
        found = curvature(net, self.slots, self.structure, data)
        weights = {name: slots[0].get().detach() for name, slots in self.slots.items()}
        noise = self._noise(found, data)
        unit = 1.0 if noise is None else float(data.likelihood.std) ** 2  # λ is of noise of this variance
        grouped = self._grouped(found)
        groups = [
            Group(
                unit * flat_spectrum([found.blocks[i].spectrum() for i in members]),
                sum(float(weights[name].double().square().sum()) for i in members for name in found.names[i]),
            )
            for members in grouped.values()
        ]
        given = None if isinstance(asked, str) else [float(asked)] * len(groups)
        deltas, scale = maximised(groups, noise, given)
        each = {i: delta for members, delta in zip(grouped.values(), deltas, strict=True) for i in members}
        like = next(iter(weights.values()))
        self.covariance = Precision(
            found.names,
            found.blocks,
            like.new_tensor([each[i] for i in range(len(each))]),
            like.new_tensor(scale * unit),
        )
        self.reasons = found.reasons
        if noise is not None:
            data.likelihood.log_std.fill_(-0.5 * torch.tensor(scale).log())
        raised = more = None
        if asked == VALIDATION:
            deltas, more = self._validated(data, len(groups))
        elif self.prior_precision is None and data.likelihood.task == "classification":
            times = self._times(data)
            raised = more = None if times == 1 else RAISED.format(max(deltas))
            deltas = [delta * times for delta in deltas]
        log_prob = found.log_prob if noise is None else noise.log_prob(scale)
        self.log_evidence = log_evidence(log_prob, groups, deltas, 1.0 if noise is None else scale)
        how = f" by {HOW[asked]}" if isinstance(asked, str) and raised is None else ""
        said = [self._said(deltas, how, noise, scale, time.perf_counter() - began)]
        self.versions = self._versions()
        return said if more is None else [*said, more]

    def _noise(self, found: Pass, data: TrainingData) -> Noise | None:
        """What the noise is found by, where it may be."""
        law, asked = data.likelihood, self.find_noise
        if law.name != "normal" or asked is False:
            if asked:
                raise ValueError(
                    f"find_noise=True is for likelihood='normal'; this model has {law.name!r}: leave it out"
                )
            return None
        at_default = law.is_left_open or (not law.learn_std and float(law.std) == 1.0)
        return Noise(found.number, found.square) if asked or at_default else None

    def _grouped(self, found: Pass) -> Grouped:
        """Blocks with one prior precision: all, or those of every layer."""
        grouped: Grouped = {}
        for i, names in enumerate(found.names):
            grouped.setdefault(layer_of(names[0]) if self.per_layer else "", []).append(i)
        return grouped

    def _validated(self, data: TrainingData, count: int) -> tuple[list[float], str | None]:
        """The δ with the smallest NLL on the validation data, and what is to say where the search found no end. Beyond
        GRID it goes on while that helps by more than a ten-thousandth."""
        assert self.covariance is not None and data.score is not None
        deltas: Any = self.covariance.deltas
        told = data.score

        def score(decade: float) -> float:
            deltas.fill_(10**decade)
            return told()

        scores = [score(decade) for decade in GRID]
        low = min(scores)
        best = GRID[scores.index(low)]
        step = {GRID[0]: -STEP, GRID[-1]: STEP}.get(best, 0.0)
        while step and abs(best) < FURTHEST:
            found = score(best + step)
            if found > low:
                step = 0.0
                break
            best, helps, low = best + step, low - found > 1e-4 * abs(low), found
            if not helps:
                break
        deltas.fill_(10**best)
        return [10**best] * count, AT_END.format(10**best, ENDS[step > 0]) if step else None

    def _times(self, data: TrainingData) -> float:
        """The smallest factor of every δ that leaves the confidence on training examples within SLACK of the plain
        network's: where classes are told by a wide margin the curvature vanishes, and with it what holds δ up."""
        assert self.covariance is not None and data.confidence is not None
        deltas: Any = self.covariance.deltas
        before, told = deltas.clone(), data.confidence

        def confidence(decades: float) -> float:
            deltas.copy_(before * 10**decades)
            return told()

        wanted = confidence(2 * DECADES) - SLACK / data.num_members
        low, high = 0.0, DECADES
        if confidence(low) >= wanted:
            return 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if confidence(middle) >= wanted else (middle, high)
        deltas.copy_(before * 10**high)
        return 10**high

    def _said(
        self, deltas: Sequence[float], how: str, noise: Noise | None, scale: float, seconds: float
    ) -> str:
        low, high = min(deltas), max(deltas)
        precision = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g} (one for each layer)"
        std = "" if noise is None else f", noise std {scale**-0.5:.3g} by marginal likelihood"
        return (
            f"Laplace: {self.structure} curvature in {seconds:.1f} s, prior precision {precision}{how}{std}"
        )

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        prefix = "covariance."
        stored = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        if stored:
            weights = {name: slots[0].get().detach() for name, slots in self.slots.items()}
            self.covariance = Precision.like(weights, stored)

    def take_over(self, other: Posterior) -> None:
        assert isinstance(other, Laplace)
        self.covariance, self.reasons, self.log_evidence = other.covariance, other.reasons, other.log_evidence

    def plain_data(self) -> Any:
        return (
            None if self.covariance is None else {"reasons": self.reasons, "log_evidence": self.log_evidence}
        )

    def take_plain_data(self, data: Any) -> None:
        if data is not None:
            check_content(data, {"reasons": Mapping[str, str], "log_evidence": float | None}, "posterior")
            self.reasons, self.log_evidence = dict(data["reasons"]), data["log_evidence"]

    def describe(self, name: str) -> str:
        why = f"; {self.reasons[name]}" if name in self.reasons else ""
        return super().describe(name) + why

    def notes(self) -> list[str]:
        if self.covariance is None:
            return [f"{self.structure} curvature is found by bf.fit(model, train_loader)"]
        found = [] if self.log_evidence is None else [f"log marginal likelihood {self.log_evidence:.6g}"]
        return [*found, *(["predictions are those of the linearised network"] if self.linear else [])]
