"""How good predicted means and variances are. Means, variances and targets share one shape.

Draws of a predictive are an equal mixture of normals: means and variances (draws, …), target (…).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayesify.predict.mixture import NormalMixture

LEVELS = tuple(i / 20 for i in range(1, 20))
NODES = 128  # of `crps_of`
STEPS = 32


class CalibrationCurve(NamedTuple):
    """Per level: the share of targets that the model puts below its own quantile of that level."""

    level: Tensor
    share: Tensor


def rmse(mean: Tensor, target: Tensor) -> Tensor:
    """Root mean squared error; both of one shape but for sizes of 1."""
    return (mean.double() - matched(mean, target)).square().mean().sqrt()


def lpd(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """Mean log density of the target, per target: log N(y; mean, var), or of the mixture over draws."""
    return log_density(mean, var, target).mean()


def log_density(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """log (1/S) Σ_s N(y; mean_s, var_s), elementwise; a mean of the target's shape is a single normal."""
    mean, var, target = _as_draws(mean, var, target)
    each = -0.5 * ((target - mean).square() / var + (2 * math.pi * var).log())
    return each.logsumexp(0) - math.log(len(each))


def crps(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """Mean continuous ranked probability score, in the target's units: ∫ (F(z) − 1[z ≥ y])² dz."""
    return crps_each(mean, var, target).mean()


def crps_each(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """The CRPS of every target: E|X − y| − ½ E|X − X′|, X and X′ from the mixture over draws,

    with E|N(m, v)| = 2 √v φ(m/√v) + m (2 Φ(m/√v) − 1).
    """
    mean, var, target = _as_draws(mean, var, target)
    to_target = _mean_absolute(target - mean, var).mean(0)
    between = torch.zeros_like(to_target)
    for m, v in zip(mean, var, strict=True):
        between += _mean_absolute(mean - m, var + v).mean(0) / len(mean)
    return to_target - 0.5 * between


def crps_of(
    cdf: Callable[[Tensor], Tensor], quantile: Callable[[float], Tensor], target: Tensor, whole: bool = False
) -> Tensor:
    """The CRPS of every target for any law with distribution function F and median m, to about 1e-3 of its value:

    ∫₀^∞ F(m − w)² + (1 − F(m + w))² dw + ∫_m^y 2 F(z) − 1 dz,

    both by NODES points of w/(w + c), c the distance of the quartiles; of `whole` numbers the first STEPS steps of F
    are summed one by one.
    """
    target = target.double()
    median, low, high = (quantile(level).double() for level in (0.5, 0.25, 0.75))
    side, reach = (target - median).sign(), (target - median).abs()
    first = STEPS if whole else 0
    width = torch.maximum(high - low, 1e-3 * reach).clamp_min(torch.finfo(torch.float32).tiny)
    left = (reach - first).clamp_min(0)  # of the way to the target, after the first steps
    end = left / (left + width)

    def tails(w: Tensor | float) -> Tensor:
        return cdf(median - w).square() + (1 - cdf(median + w)).square()

    def between(w: Tensor | float) -> Tensor:
        return side * (2 * cdf(median + side * w) - 1)

    total = torch.zeros_like(target)
    for step in range(first):
        total += tails(step + 0.5) + torch.where(reach > step, between(step + 0.5), 0.0)
    for u, weight in zip(*_nodes(), strict=True):
        total += weight * width / (1 - u) ** 2 * tails(first + width * u / (1 - u))
        v = end * u
        total += weight * end * width / (1 - v).square() * between(first + width * v / (1 - v))
    return total


@lru_cache
def _nodes() -> tuple[list[float], list[float]]:
    """Gauss-Legendre points in 0 … 1, and their weights."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return (points / 2 + 0.5).tolist(), (weights / 2).tolist()


def interval_coverage(lower: Tensor, upper: Tensor, target: Tensor) -> Tensor:
    """Share of targets in [lower, upper]."""
    target = matched(lower, target)
    return ((target >= lower.double()) & (target <= upper.double())).double().mean()


def sharpness(var: Tensor) -> Tensor:
    """Mean predicted standard deviation, in the target's units: smaller is sharper."""
    return var.double().sqrt().mean()


def quantile_levels(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """F(y), the probability below the target, elementwise: uniform for a calibrated model.

    Of a draw without variance that hits the target one half is below it.
    """
    mean, var, target = _as_draws(mean, var, target)
    return NormalMixture(mean, var).cdf(target)


def calibration_curve(level: Tensor, levels: Sequence[float] = LEVELS) -> CalibrationCurve:
    """The curve of `quantile_levels`: a calibrated model has share = level."""
    wanted = torch.tensor(levels, dtype=torch.float64, device=level.device)
    ordered = level.double().flatten().sort().values
    return CalibrationCurve(wanted, torch.searchsorted(ordered, wanted, right=True) / len(ordered))


def calibration_error(level: Tensor, levels: Sequence[float] = LEVELS) -> Tensor:
    """Mean |share − level| of the calibration curve."""
    curve = calibration_curve(level, levels)
    return (curve.share - curve.level).abs().mean()


def matched(mean: Tensor, target: Tensor) -> Tensor:
    """The target in float64 and in the shape of `mean`; only sizes of 1 may differ."""
    if _sizes(mean) != _sizes(target):
        raise ValueError(f"mean {tuple(mean.shape)} and target {tuple(target.shape)} must have one shape")
    return target.double().reshape(mean.shape)


def _sizes(values: Tensor) -> list[int]:
    return [size for size in values.shape if size != 1]


def _as_draws(mean: Tensor, var: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All in float64 with draws first; means of the target's shape are a single normal, one draw."""
    if _sizes(mean) == _sizes(target):
        mean, var = mean[None], var[None]
    return mean.double(), var.double(), matched(mean[0], target)


def _mean_absolute(mean: Tensor, var: Tensor) -> Tensor:
    """E|X| for X ~ N(mean, var); |mean| at variance 0."""
    z = mean / var.sqrt().clamp_min(torch.finfo(var.dtype).tiny)  # at variance 0 ±∞, and 0 for no mean
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return 2 * var.sqrt() * density + mean * (2 * torch.special.ndtr(z) - 1)
