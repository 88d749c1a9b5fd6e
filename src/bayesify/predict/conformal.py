"""Sets and intervals that hold the target with a chosen probability: split conformal prediction.

A score s(x, y) says how badly y goes with what is predicted at x. The threshold q is the ⌈(n + 1) coverage⌉-th
smallest score of n examples that the model was not trained on; the set is {y : s(x, y) ≤ q}. Where these examples and
a new one are exchangeable, it holds its target with a probability of at least `coverage`, whatever the model is.

    lac        1 − p_y                                                    (Sadinle, Lei and Wasserman 2019)
    aps        Σ_{c before y} p_c + u p_y, classes in falling order of p  (Romano, Sesia and Candès 2020)
    raps       aps + penalty · max(0, rank of y − num_free)               (Angelopoulos et al. 2021)
    absolute   |y − mean|
    std        |y − mean| / std
    quantile   max(low − y, y − high), the (1 ∓ coverage) / 2 quantiles   (Romano, Patterson and Candès 2019)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Generator, Tensor

from bayesify.checks import Count, NotNegative, Range, Share, check_fields
from bayesify.names import check_choice

#: what torch counts by
Seed = Annotated[int, Range(least=0, below=2**63)]
Ends = tuple[Tensor, Tensor, Tensor | float]


def _aps(rule: "ConformalRule", probs: Tensor) -> Tensor:
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    u = 1.0 if rule.seed is None else uniforms(probs, rule.seed)[:, None]
    return _placed(order, ordered.cumsum(1) - ordered + u * ordered)


def _raps(rule: "ConformalRule", probs: Tensor) -> Tensor:
    order = probs.argsort(dim=1, descending=True, stable=True)
    rank = torch.arange(1, probs.shape[1] + 1, device=probs.device, dtype=probs.dtype).expand_as(probs)
    return _aps(rule, probs) + rule.penalty * _placed(order, (rank - rule.num_free).clamp_min(0))


def _placed(order: Tensor, values: Tensor) -> Tensor:
    return torch.empty_like(values).scatter_(1, order, values)


def _quantiles(p: Any, coverage: float) -> Ends:
    low, high = p.interval(coverage)
    return low, high, 1.0


#: (rule, probabilities (n, classes)) -> the score of every class
OF_CLASSES: dict[str, Callable[["ConformalRule", Tensor], Tensor]] = {
    "aps": _aps,
    "lac": lambda rule, probs: 1 - probs,
    "raps": _raps,
}
#: (prediction, coverage) -> low, high, unit; the score is max(low − y, y − high) / unit
OF_NUMBERS: dict[str, Callable[[Any, float], Ends]] = {
    "std": lambda p, coverage: (p.mean, p.mean, p.std.clamp_min(torch.finfo(p.std.dtype).tiny)),
    "absolute": lambda p, coverage: (p.mean, p.mean, 1.0),
    "quantile": _quantiles,
}
#: by task, the default first
SCORES: dict[str, Mapping[str, Any]] = {"classification": OF_CLASSES, "regression": OF_NUMBERS}


@dataclass(frozen=True)
class ConformalRule:
    """What `bf.conformal` found: all that turns a prediction into a set or an interval, as plain data."""

    score: str
    coverage: Share
    #: None is infinite; one for all, one for each class, or one for each number of a target
    thresholds: list[float | None]
    num_draws: Count  # that the predictions averaged
    num_data: Count
    seed: Seed | None = 0  # of u; None: u = 1
    penalty: NotNegative = 0.01
    num_free: Seed = 5

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice(frozenset({*OF_CLASSES, *OF_NUMBERS}), self.score, "score")

    @property
    def keeps_samples(self) -> bool:
        """Does the score need the draws of a prediction?"""
        return self.score == "quantile"

    def class_scores(self, prediction: Any) -> Tensor:
        """(batch, classes), in float64."""
        rows = prediction.likelihood.classes.rows(prediction.mean)
        if len(rows) != len(prediction):
            shape = tuple(prediction.mean.shape)
            raise ValueError(
                f"conformal sets are for one class of each example: the probabilities have shape {shape}, of several "
                f"labels or positions (multi-label, segmentation), for which no joint coverage is known"
            )
        return OF_CLASSES[self.score](self, rows.double())

    def ends(self, prediction: Any) -> Ends:
        """low, high and unit of each number, see `OF_NUMBERS`."""
        if prediction.mean.dim() > 2:
            raise ValueError(
                f"conformal intervals are for one number, or a row of numbers, of each example: the predicted means "
                f"have shape {tuple(prediction.mean.shape)}"
            )
        return OF_NUMBERS[self.score](prediction, self.coverage)

    def sets(self, prediction: Any) -> Tensor:
        """(batch, classes), bool; every class where the probabilities are NaN."""
        self._check(prediction)
        scores = self.class_scores(prediction)
        return ~(scores > self._q(scores, scores.shape[1]))

    def interval(self, prediction: Any) -> tuple[Tensor, Tensor]:
        """low and high of each number; where they would cross, both are the middle."""
        self._check(prediction)
        low, high, unit = self.ends(prediction)
        q = self._q(low.double(), low[0].numel() if len(low) else 1)
        q = (q if low.dim() > 1 else q[0]).to(low.dtype)
        middle = (low + high) / 2
        return torch.minimum(low - q * unit, middle), torch.maximum(high + q * unit, middle)

    def scaled(self, factor: Tensor) -> "ConformalRule":
        """The rule of targets that are `factor` times as large."""
        if self.score == "std":
            return self
        factors = factor.double().flatten().expand(len(self.thresholds)).tolist()
        pairs = zip(self.thresholds, factors, strict=True)
        return replace(self, thresholds=[None if t is None else t * f for t, f in pairs])

    def data(self) -> dict[str, Any]:
        """Plain data that makes this rule again."""
        return dict(vars(self))

    def __str__(self) -> str:
        """In words, for `summary()`."""
        what = "sets" if self.score in OF_CLASSES else "intervals"
        each = f", {len(self.thresholds)} thresholds" if len(self.thresholds) > 1 else ""
        return f"conformal {what}: score {self.score}, coverage {self.coverage:g}, {self.num_data:,} examples{each}"

    def _q(self, like: Tensor, most: int) -> Tensor:
        """The thresholds: (1,), or one for each class or number."""
        if len(self.thresholds) not in (1, most):
            raise ValueError(
                f"the conformal rule has {len(self.thresholds)} thresholds, {most} classes or numbers are predicted: "
                f"call bf.conformal anew"
            )
        return like.new_tensor([math.inf if t is None else t for t in self.thresholds])

    def _check(self, prediction: Any) -> None:
        if self.score not in SCORES[prediction.likelihood.task]:
            raise ValueError(f"the conformal rule has score {self.score!r}, which is not for this prediction")
        if prediction.num_draws != self.num_draws:
            raise ValueError(
                f"the conformal rule was fitted to predictions of num_draws={self.num_draws}, this one has "
                f"{prediction.num_draws}: predict with as many, or call bf.conformal(..., num_draws="
                f"{prediction.num_draws})"
            )


def threshold(scores: Tensor, coverage: float) -> float | None:
    """The ⌈(n + 1) coverage⌉-th smallest of n scores; None, which is infinite, where there are fewer."""
    place = max(math.ceil((len(scores) + 1) * coverage - 1e-9), 1)  # 20 · 0.55 is 11
    return float(scores.double().kthvalue(place).values) if place <= len(scores) else None


def fewest(coverage: float) -> int:
    """The smallest n with ⌈(n + 1) coverage⌉ ≤ n."""
    return max(math.ceil(coverage / (1 - coverage) - 1e-9), 1)


def uniforms(probs: Tensor, seed: int) -> Tensor:
    """A number in (0, 1) for each row of (n, classes), which follows from the row and the seed: the same prediction
    has the same set in every batch. Over seeds they are uniform, and those of two different rows are independent
    (multiply-shift hashing, h = Σ_c a_c bits(p_c) + b modulo 2⁶⁴, of which the upper half counts)."""
    bits = probs.float().contiguous().view(torch.int32).long() & 0xFFFFFFFF
    halves = torch.randint(2**32, (2, bits.shape[1] + 1), generator=Generator().manual_seed(seed))
    factors = ((halves[0] << 32) | halves[1]).to(bits.device)
    hashed = (bits * factors[:-1]).sum(1) + factors[-1]
    return (((hashed >> 32) & 0xFFFFFFFF).double() + 0.5) / 2**32
