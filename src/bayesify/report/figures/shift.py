"""Figures of inputs that differ from training (unknown, corrupted, rotated, noisy, attacked)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.report.figures.style import BAD, GOOD, Array, Series, labelled, legend, lines, new, percent


def entropy_histograms(edges: Array, inside: Array, outside: dict[str, Array], title: str) -> Any:
    """How uncertain the model is about test inputs and about inputs of another kind."""
    figure, axes = new(3.4, 2.9)
    axes.stairs(inside, edges, fill=True, color=GOOD, alpha=0.55, label="test")
    for number, (name, share) in enumerate(outside.items()):
        colour = (BAD, "#e0802a", "#8a6fdf")[number % 3]
        axes.stairs(share, edges, fill=True, color=colour, alpha=0.45, label=name)
    labelled(axes, "entropy of the prediction (nats)", "share (square-root scale)", title)
    axes.set_yscale("function", functions=(np.sqrt, np.square))
    axes.set_yticks([0, 0.02, 0.1, 0.3, 0.6, 1.0])
    axes.set_ylim(0, max(0.3, *(float(h.max()) for h in (inside, *outside.values()))))
    percent(axes, "y")
    legend(figure, axes)
    return figure


def severity(series: Series, y: str = "accuracy") -> Any:
    """A mean over corruptions against severity."""
    figure = lines(series, "severity of 15 corruptions", y, percents="y")
    figure.axes[0].set_xticks(range(6), ["clean", "1", "2", "3", "4", "5"])
    return figure


def corruption_map(accuracy: Array, names: Sequence[str], title: str) -> Any:
    """Accuracy for every corruption and severity, as colours with numbers."""
    figure, axes = new(3.6, 4.2)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("accuracy", ["#b23a48", "#d9a441", "#3b7dd8"])
    axes.imshow(accuracy, cmap=colours, vmin=0, vmax=1, aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(5), ["1", "2", "3", "4", "5"])
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    for (row, column), value in np.ndenumerate(accuracy):
        axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color="white")
    axes.spines[:].set_visible(False)
    labelled(axes, "severity", "", title)
    return figure


def against_rotation(series: Series, y: str) -> Any:
    """A number against the angle of rotation."""
    figure = against(series, "rotation (degrees)", y)
    figure.axes[0].set_xticks([0, 45, 90, 135, 180])
    return figure


def against_snr(series: Series, y: str) -> Any:
    """A number against the signal-to-noise ratio, noise growing to the right."""
    figure = against(series, "signal-to-noise ratio (dB), noisier to the right", y)
    figure.axes[0].invert_xaxis()
    return figure


def against(series: Series, x: str, y: str) -> Any:
    """Lines of the accuracy, in percent, or of another number."""
    return lines(series, x, y, percents="y" if y == "accuracy" else "")
