"""The marginal likelihood of a Laplace approximation, and the prior precision and noise that maximise it.

log p(D) ≈ log p(D | ŵ) + ½ Σ_j [d_j log δ_j − δ_j ‖ŵ_j‖² − Σ_i log(s λ_ji + δ_j)]

of groups j of d_j weights with one prior precision δ_j each and eigenvalues λ_ji of the curvature. Its derivative by
every log δ_j, and by log s = −2 log std of a normal likelihood, falls: the root is found by bisection.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LOG_RANGE = (-30.0, 30.0)  # of log δ and log s
ROUNDS, TOLERANCE = 500, 1e-10  # of δ and s in turn; by which both move in the last one


class Group(NamedTuple):
    """Weights with one prior precision.

    spectrum:  λ, flat, in float64, of curvature with unit noise where the noise is found too
    square:    ‖ŵ‖²
    """

    spectrum: Tensor
    square: float

    def effective(self, delta: float, scale: float) -> float:
        """γ = Σ s λ / (s λ + δ): how many weights the data determine."""
        return float((scale * self.spectrum / (scale * self.spectrum + delta)).sum())


class Noise(NamedTuple):
    """Of a normal likelihood.

    number:  of targets
    square:  Σ (y − f)²
    """

    number: int
    square: float

    def log_prob(self, scale: float) -> float:
        """log p(D | ŵ) at 1 / std² = scale."""
        return 0.5 * (self.number * math.log(scale / (2 * math.pi)) - scale * self.square)


def log_evidence(log_prob: float, groups: Sequence[Group], deltas: Sequence[float], scale: float) -> float:
    """log p(D) of the Laplace approximation."""
    total = log_prob
    for (spectrum, square), delta in zip(groups, deltas, strict=True):
        log_det = float((scale * spectrum + delta).log().sum())
        total += 0.5 * (len(spectrum) * math.log(delta) - delta * square - log_det)
    return total


def maximised(
    groups: Sequence[Group], noise: Noise | None, fixed: Sequence[float] | None = None
) -> tuple[list[float], float]:
    """(δ of every group, s) at the largest marginal likelihood.

    noise:  where s is to be found too, else it is 1
    fixed:  δ where they are given
    """
    deltas, scale = [1.0] * len(groups), 1.0
    for _ in range(ROUNDS):
        before = [*deltas, scale]
        deltas = [_best_delta(group, scale) for group in groups] if fixed is None else list(fixed)
        if noise is None:
            break
        scale = _best_scale(groups, deltas, noise)
        moved = [abs(math.log(a / b)) for a, b in zip([*deltas, scale], before, strict=True)]
        if max(moved) < TOLERANCE:
            break
    return deltas, scale


def _best_delta(group: Group, scale: float) -> float:
    """Where γ(δ) = δ ‖ŵ‖²."""
    return _root(lambda delta: group.effective(delta, scale) - delta * group.square)


def _best_scale(groups: Sequence[Group], deltas: Sequence[float], noise: Noise) -> float:
    """Where N − γ(s) = s Σ (y − f)²."""

    def slope(scale: float) -> float:
        known = sum(group.effective(delta, scale) for group, delta in zip(groups, deltas, strict=True))
        return noise.number - known - scale * noise.square

    return _root(slope)


def _root(falling: Callable[[float], float]) -> float:
    """exp(u) where a function that falls with u passes 0; an end of LOG_RANGE where it does not."""
    low, high = LOG_RANGE
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def flat_spectrum(parts: Sequence[Tensor]) -> Tensor:
    """λ of several blocks as one, in float64."""
    return torch.cat([part.detach().double().flatten().cpu() for part in parts])
