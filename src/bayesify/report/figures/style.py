"""How figures look: thin axes, direct colours, no frame; ink and paper follow the page's light or dark mode."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray
#: (label, x, y) of every line
Series = Sequence[tuple[str, Array, Array]]
#: stand-ins that svg.py turns into the page's own colours
INK, MUTED, GRID, PAPER = "#010203", "#010204", "#010205", "#010206"
#: readable on white and on near-black; told apart by people who see red and green alike, with MARKERS' help
COLOURS = (
    *("#3b7dd8", "#e0802a", "#1f9e78", "#c4529b", "#8a6fdf"),
    *("#2ba3b8", "#a68a21", "#d64c5e", "#6b8e3a", "#8d7b68"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
GOOD, BAD = COLOURS[0], COLOURS[7]


def new(width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """A figure with one pair of axes; sizes in inches, before the page scales it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure, prepared(figure.subplots())


def prepared(axes: Any) -> Any:
    """Axes in the house style."""
    axes.patch.set_alpha(0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=MUTED, linewidth=0.8)
    axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=9, width=0.8, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
        label.set(color=INK, fontsize=10)
    axes.set_axisbelow(True)
    axes.grid(True, color=GRID, linewidth=0.7)
    return axes


def labelled(axes: Any, x: str, y: str, title: str = "") -> None:
    """Names of both axes, and a title where there is one."""
    axes.set(xlabel=x, ylabel=y)
    if title:
        axes.set_title(title, loc="left", fontsize=10, color=INK)


def percent(axes: Any, which: str = "y") -> None:
    """Shares as percentages along an axis."""
    from matplotlib.ticker import PercentFormatter

    for name in which:
        getattr(axes, f"{name}axis").set_major_formatter(PercentFormatter(1.0, decimals=None))


def whole(axes: Any) -> None:
    """Whole numbers along x."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def legend(figure: Any, axes: Any) -> None:
    """Below the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) < 2:
        return
    look = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(labels) < 9 else 3, **look)


def lines(
    series: Series,
    x: str,
    y: str,
    title: str = "",
    percents: str = "",
    markers: bool = True,
) -> Any:
    """One line per (label, x, y); one without points is left out, and the others keep their colours."""
    figure, axes = new(4.4, 3.4 + 0.1 * len(series))
    for number, (label, xs, ys) in enumerate(series):
        if len(xs) == 0:
            continue
        style = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4} if markers else {}
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(np.asarray(xs), np.asarray(ys), label=label, color=colour, linewidth=1.6, **style)
    labelled(axes, x, y, title)
    percent(axes, percents)
    legend(figure, axes)
    return figure
