"""Figures of calibration: reliability, confidence sets, conformal coverage; of regression: curve and band."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.report.figures import style
from bayesify.report.figures.style import Array, Series

UNSURE = style.COLOURS[2]
DASHED = {"color": style.MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}


def reliability(size: Array, confidence: Array, accuracy: Array, title: str, ece: float) -> Any:
    """Accuracy against confidence in bins of equal width, the gap to the diagonal, and a histogram below."""
    figure, _ = style.new(3.1, 3.6)
    figure.clear()
    upper, lower = (style.prepared(a) for a in figure.subplots(2, 1, sharex=True, height_ratios=(3, 1)))
    bins = len(size)
    left, width = np.arange(bins) / bins, 1 / bins
    used = size > 0
    upper.plot([0, 1], [0, 1], zorder=1, **DASHED)
    low, high = np.minimum(accuracy, confidence)[used], np.maximum(accuracy, confidence)[used]
    upper.bar(left[used], low, width, align="edge", color=style.GOOD, linewidth=0)
    colours = np.where((confidence > accuracy)[used], style.BAD, UNSURE)
    upper.bar(left[used], high - low, width, low, align="edge", color=colours, alpha=0.75, linewidth=0)
    upper.set(xlim=(0, 1), ylim=(0, 1))
    # a bar may lie below the words
    behind = {"facecolor": style.PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 2}
    text = f"ECE {100 * ece:.1f} %\n{bins} bins"
    upper.text(0.05, 0.9, text, color=style.INK, fontsize=9, va="top", bbox=behind)
    style.labelled(upper, "", "accuracy", title)
    share = size / max(size.sum(), 1)
    lower.bar(left, share, width, align="edge", color=style.GRID, edgecolor=style.MUTED, linewidth=0.5)
    style.labelled(lower, "confidence", "share")
    style.percent(upper, "y")
    style.percent(lower, "xy")
    return figure


def confidence_sets(series: Series, what: str) -> Any:
    """`what` ("accuracy" or "size") of the sets on which at least a share of the draws agrees."""
    y = {"accuracy": "accuracy in the set", "size": "share of examples in the set"}[what]
    return style.lines(series, "draws that agree, at least", y, percents="xy", markers=False)


def calibration_curve(series: Series) -> Any:
    """Regression: the share of targets below the predicted quantile of each level."""
    figure = style.lines(series, "predicted level", "observed share", percents="xy", markers=False)
    figure.axes[0].plot([0, 1], [0, 1], **DASHED)
    return figure


def band(inputs: Array, mean: Array, std: Array, target: Array | None, title: str = "") -> Any:
    """A curve of one input with bands of one and two predicted standard deviations."""
    figure, axes = style.new(4.4, 3.2)
    order = np.argsort(inputs)
    x, m, s = inputs[order], mean[order], std[order]
    for width, alpha in ((2, 0.18), (1, 0.28)):
        low, high, label = m - width * s, m + width * s, f"± {width} std"
        axes.fill_between(x, low, high, color=style.GOOD, alpha=alpha, linewidth=0, label=label)
    axes.plot(x, m, color=style.GOOD, linewidth=1.8, label="mean")
    if target is not None:
        axes.plot(x, target[order], ".", color=style.BAD, markersize=3, alpha=0.7, label="target")
    style.labelled(axes, "input", "output", title)
    style.legend(figure, axes)
    return figure


def coverage(series: Series) -> Any:
    """The share of test targets that sets hold; on the diagonal they hold as many as was asked for."""
    figure = style.lines(series, "nominal coverage", "coverage of the test part", percents="xy")
    ends = [min(min(xs) for _, xs, _ in series if len(xs)), max(max(xs) for _, xs, _ in series if len(xs))]
    figure.axes[0].plot(ends, ends, **DASHED)
    return _at_nominal(figure, series)


def set_size(series: Series, y: str) -> Any:
    """The mean size of sets, or width of intervals."""
    return _at_nominal(style.lines(series, "nominal coverage", y, percents="x"), series)


def under_shift(series: Series, names: Sequence[str], nominal: float) -> Any:
    """The coverage of every kind of test images, in a row; the guarantee is for the first alone."""
    beside = [(label, xs + 0.1 * (i - (len(series) - 1) / 2), ys) for i, (label, xs, ys) in enumerate(series)]
    figure = style.lines(beside, "", "coverage", percents="y")
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
