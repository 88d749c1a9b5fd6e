"""Several runs of one thing: mean and standard error, and whether two things differ. Needs scipy."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Numbers = Sequence[float] | np.ndarray


class Mean(NamedTuple):
    """A mean over runs, its standard error (NaN for a single run) and the number of runs."""

    value: float
    error: float
    num_runs: int

    def __str__(self) -> str:
        if self.num_runs < 2:
            return f"{self.value:.4g} (1 run)"
        digits = 0 if self.error == 0 else max(0, 1 - math.floor(math.log10(self.error)))
        return f"{self.value:.{min(digits, 8)}f} ± {self.error:.1g} ({self.num_runs} runs)"


class Evidence(NamedTuple):
    """A test: its statistic, the p-value, and the number of runs (or pairs) it rests on."""

    statistic: float
    p: float
    num_runs: int


def mean(values: Numbers) -> Mean:
    """Mean and s / √n, s with divisor n − 1.

    >>> str(mean([0.90, 0.92, 0.94]))
    '0.920 ± 0.01 (3 runs)'
    """
    array = _array(values, 1, "values")
    error = float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan
    return Mean(float(array.mean()), error, len(array))


def paired_t_test(first: Numbers, second: Numbers) -> Evidence:
    """Is the mean difference of pairs (the same seed, or the same example) zero? Two-sided.

    Equal differences everywhere are no evidence (p = 1) if they are zero, else p = 0.
    """
    from scipy import stats

    a, b = _pairs(first, second, 2)
    difference = a - b
    rounding = 1e-12 * max(np.abs(a).max(), np.abs(b).max())
    if np.ptp(difference) <= rounding:
        same = abs(float(difference.mean())) <= rounding
        return Evidence(0.0 if same else math.inf, float(same), len(a))
    result = stats.ttest_rel(a, b)
    return Evidence(float(result.statistic), float(result.pvalue), len(a))


def anova(*groups: Numbers) -> Evidence:
    """One-way analysis of variance: do all groups have one mean? num_runs: of all groups together."""
    from scipy import stats

    if len(groups) < 2:
        raise ValueError(f"{len(groups)} group: an analysis of variance compares at least two")
    arrays = [_array(group, 2, f"group {i}") for i, group in enumerate(groups)]
    result = stats.f_oneway(*arrays)
    return Evidence(float(result.statistic), float(result.pvalue), sum(map(len, arrays)))


def spearman(first: Numbers, second: Numbers) -> Evidence:
    """Rank correlation; a small p means that the two agree in order (or disagree, where it is negative)."""
    from scipy import stats

    a, b = _pairs(first, second, 3)
    result = stats.spearmanr(a, b)
    return Evidence(float(result.statistic), float(result.pvalue), len(a))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for being several (Holm 1979), in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _pairs(first: Numbers, second: Numbers, least: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = _array(first, least, "first"), _array(second, least, "second")
    if len(a) != len(b):
        raise ValueError(f"first has {len(a)} values, second {len(b)}: pairs are needed")
    return a, b


def _array(values: Numbers, least: int, name: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"{name} has shape {array.shape}: give at least {least} numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite values")
    return array
