"""Figures of posteriors and their cost: phase transition, κ, sampler diagnostics, KL error, memory and time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesify.report.figures import style
from bayesify.report.figures.style import Array, Series


def phase_transition(epoch: Array, log_alpha: Array, deterministic: Array, ensemble: Array) -> Any:
    """log α over training, and the accuracy of the mean network and of the ensemble (paper 5, Fig. 1)."""
    figure, axes = style.new(4.4, 3.4)
    axes.plot(epoch, ensemble, color=style.GOOD, linewidth=1.8, label="ensemble")
    axes.plot(epoch, deterministic, color=style.BAD, linewidth=1.8, label="mean network")
    style.labelled(axes, "epoch", "accuracy")
    style.whole(axes)
    style.percent(axes, "y")
    other = axes.twinx()
    other.plot(epoch, log_alpha, color=style.MUTED, linewidth=1.2, linestyle=(0, (4, 3)), label="log α")
    other.set_ylabel("log α", color=style.MUTED, fontsize=10)
    other.tick_params(colors=style.MUTED, labelsize=9)
    other.spines[:].set_visible(False)
    style.legend(figure, axes)
    return figure


def kappa_histogram(counts: Array, edges: Array, threshold: float, title: str) -> Any:
    """Counts of log₁₀ κ; weights right of the threshold carry what was learned (paper 5, eq. 16, Fig. 3)."""
    figure, axes = style.new(3.4, 2.9)
    axes.stairs(counts, edges, fill=True, color=style.GOOD, alpha=0.8)
    axes.axvline(threshold, color=style.BAD, linewidth=1.4)
    axes.set(yscale="log", ylim=(0.5, None))
    seen = np.flatnonzero(counts)
    axes.set_xlim(min(edges[seen[0]], threshold) - 1, max(edges[seen[-1] + 1], threshold) + 1)
    style.labelled(axes, "log₁₀ κ", "weights", title)
    return figure


def sampler_diagnostics(step: Array, quantities: Mapping[str, Array], expected: Mapping[str, float]) -> Any:
    """Quantities of a sampler over its steps (kinetic temperature, thermostat), with what theory expects."""
    figure, axes = style.new(4.4, 3.2)
    for number, (name, values) in enumerate(quantities.items()):
        colour = style.COLOURS[number % len(style.COLOURS)]
        axes.plot(step, values, color=colour, linewidth=1.3, label=name)
        if name in expected:
            axes.axhline(expected[name], color=colour, linewidth=0.9, linestyle=(0, (4, 3)))
    style.labelled(axes, "step", "in units of T, and of D")
    style.legend(figure, axes)
    return figure


def autocorrelation(lag: Array, rho: Array, x: str) -> Any:
    """How alike two values of a series are that lie so far apart; 0 is independent."""
    figure, axes = style.new(4.4, 3.2)
    width = 0.8 * float(lag[1] - lag[0]) if len(lag) > 1 else 0.8
    axes.bar(lag, rho, width=width, color=style.GOOD)
    axes.axhline(0, color=style.MUTED, linewidth=0.9)
    style.labelled(axes, x, "autocorrelation of the loss")
    return figure


def draw_losses(series: Series) -> Any:
    """The loss of the draws of each chain, in the order in which they were kept."""
    figure = style.lines(series, "stored draw", "mean −log p(target)")
    style.whole(figure.axes[0])
    return figure


def cost_against_draws(series: Series, y: str) -> Any:
    """Memory, time or error against the number of draws M, both logarithmic (paper 1, Fig. 1, 2 and 6)."""
    figure = style.lines(series, "number of draws M", y)
    figure.axes[0].set(xscale="log", yscale="log")
    return figure
