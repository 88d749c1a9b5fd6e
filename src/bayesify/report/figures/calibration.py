"""Figures of calibration: reliability, confidence sets; of regression: curve and band."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.report.figures.style import (
    BAD,
    COLOURS,
    GOOD,
    GRID,
    INK,
    MUTED,
    PAPER,
    labelled,
    legend,
    lines,
    new,
    percent,
    prepared,
)

UNSURE = COLOURS[2]


def reliability(
    size: np.ndarray, confidence: np.ndarray, accuracy: np.ndarray, title: str, ece: float
) -> Any:
    """Accuracy against confidence in bins of equal width, the gap to the diagonal, and a histogram below."""
    figure, _ = new(3.1, 3.6)
    figure.clear()
    upper, lower = (prepared(a) for a in figure.subplots(2, 1, sharex=True, height_ratios=(3, 1)))
    bins = len(size)
    left, width = np.arange(bins) / bins, 1 / bins
    used = size > 0
    upper.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    low, high = np.minimum(accuracy, confidence)[used], np.maximum(accuracy, confidence)[used]
    upper.bar(left[used], low, width, align="edge", color=GOOD, linewidth=0)
    colours = np.where((confidence > accuracy)[used], BAD, UNSURE)
    upper.bar(left[used], high - low, width, low, align="edge", color=colours, alpha=0.75, linewidth=0)
    upper.set(xlim=(0, 1), ylim=(0, 1))
    # a bar may lie below the words
    behind = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 2}
    text = f"ECE {100 * ece:.1f} %\n{bins} bins"
    upper.text(0.05, 0.9, text, color=INK, fontsize=9, va="top", bbox=behind)
    labelled(upper, "", "accuracy", title)
    share = size / max(size.sum(), 1)
    lower.bar(left, share, width, align="edge", color=GRID, edgecolor=MUTED, linewidth=0.5)
    labelled(lower, "confidence", "share")
    percent(upper, "y")
    percent(lower, "xy")
    return figure


def confidence_sets(series: Sequence[tuple[str, np.ndarray, np.ndarray]], what: str) -> Any:
    """`what` ("accuracy" or "size") of the sets on which at least a share of the draws agrees."""
    y = {"accuracy": "accuracy in the set", "size": "share of examples in the set"}[what]
    return lines(series, "draws that agree, at least", y, percents="xy", markers=False)


def calibration_curve(series: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Any:
    """Regression: the share of targets below the predicted quantile of each level."""
    figure = lines(series, "predicted level", "observed share", percents="xy", markers=False)
    figure.axes[0].plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    return figure


def band(
    inputs: np.ndarray, mean: np.ndarray, std: np.ndarray, target: np.ndarray | None, title: str = ""
) -> Any:
    """A curve of one input with bands of one and two predicted standard deviations."""
    figure, axes = new(4.4, 3.2)
    order = np.argsort(inputs)
    x, m, s = inputs[order], mean[order], std[order]
    for width, alpha in ((2, 0.18), (1, 0.28)):
        low, high, label = m - width * s, m + width * s, f"± {width} std"
        axes.fill_between(x, low, high, color=GOOD, alpha=alpha, linewidth=0, label=label)
    axes.plot(x, m, color=GOOD, linewidth=1.8, label="mean")
    if target is not None:
        axes.plot(x, target[order], ".", color=BAD, markersize=3, alpha=0.7, label="target")
    labelled(axes, "input", "output", title)
    legend(figure, axes)
    return figure
