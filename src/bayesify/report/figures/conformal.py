"""Figures of conformal sets and intervals: coverage and size against the nominal coverage, coverage under shift."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.report.figures.style import MUTED, lines

Series = Sequence[tuple[str, np.ndarray, np.ndarray]]
DASHED = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}


def coverage(series: Series) -> Any:
    """The share of test targets that sets hold; on the diagonal they hold as many as was asked for."""
    figure = lines(series, "nominal coverage", "coverage of the test part", percents="xy")
    ends = [min(min(xs) for _, xs, _ in series if len(xs)), max(max(xs) for _, xs, _ in series if len(xs))]
    figure.axes[0].plot(ends, ends, **DASHED)
    return _at_nominal(figure, series)


def size(series: Series, y: str) -> Any:
    """The mean size of sets, or width of intervals."""
    return _at_nominal(lines(series, "nominal coverage", y, percents="x"), series)


def under_shift(series: Series, names: Sequence[str], nominal: float) -> Any:
    """The coverage of every kind of test images, in a row; the guarantee is for the first alone."""
    beside = [(label, xs + 0.1 * (i - (len(series) - 1) / 2), ys) for i, (label, xs, ys) in enumerate(series)]
    figure = lines(beside, "", "coverage", percents="y")
    axes = figure.axes[0]
    for line in axes.lines:  # kinds of images have no order
        line.set_linestyle("none")
    axes.axhline(nominal, **DASHED)
    axes.set_xticks(range(len(names)), names)
    return figure


def _at_nominal(figure: Any, series: Series) -> Any:
    """Ticks where coverage was asked for."""
    figure.axes[0].set_xticks(next(xs for _, xs, _ in series if len(xs)))
    return figure
