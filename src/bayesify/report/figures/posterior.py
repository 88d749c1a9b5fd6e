"""Figures of posteriors and their cost: phase transition, κ, sampler diagnostics, KL error, memory and time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesify.report.figures.style import BAD, COLOURS, GOOD, MUTED, labelled, legend, lines, new, percent

Series = Sequence[tuple[str, np.ndarray, np.ndarray]]


def phase_transition(
    epoch: np.ndarray, log_alpha: np.ndarray, deterministic: np.ndarray, ensemble: np.ndarray
) -> Any:
    """log α over training, and the accuracy of the mean network and of the ensemble (paper 5, Fig. 1)."""
    figure, axes = new(4.4, 3.4)
    axes.plot(epoch, ensemble, color=GOOD, linewidth=1.8, label="ensemble")
    axes.plot(epoch, deterministic, color=BAD, linewidth=1.8, label="mean network")
    labelled(axes, "epoch", "accuracy")
    percent(axes, "y")
    other = axes.twinx()
    other.plot(epoch, log_alpha, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), label="log α")
    other.set_ylabel("log α", color=MUTED, fontsize=10)
    other.tick_params(colors=MUTED, labelsize=9)
    for side in other.spines.values():
        side.set_visible(False)
    legend(figure, axes)
    return figure


def kappa_histogram(kappa: np.ndarray, threshold: float = 1.5) -> Any:
    """log₁₀ κ of every weight; those right of the threshold carry what was learned (paper 5, eq. 16)."""
    figure, axes = new(4.2, 3)
    values = np.log10(np.maximum(np.abs(kappa).ravel(), 1e-25))
    axes.hist(values, bins=60, color=GOOD, alpha=0.8)
    axes.axvline(threshold, color=BAD, linewidth=1.4)
    axes.set_yscale("log")
    share = float((values > threshold).mean())
    labelled(axes, "log₁₀ κ", "weights", f"{100 * share:.1f} % above the threshold {threshold:g}")
    return figure


def sampler_diagnostics(
    step: np.ndarray, quantities: Mapping[str, np.ndarray], expected: Mapping[str, float]
) -> Any:
    """Quantities of a sampler over its steps (kinetic temperature, thermostat), with what theory expects."""
    figure, axes = new(4.4, 3.2)
    for number, (name, values) in enumerate(quantities.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(step, values, color=colour, linewidth=1.3, label=name)
        if name in expected:
            axes.axhline(expected[name], color=colour, linewidth=0.9, linestyle=(0, (4, 3)))
    labelled(axes, "step", "value (dashed: expected)")
    legend(figure, axes)
    return figure


def kl_error(series: Series) -> Any:
    """|KL estimate − KL| against the number of draws M, both logarithmic (paper 1, Fig. 2)."""
    figure = lines(series, "draws M", "|KL estimate − KL|")
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_yscale("log")
    return figure


def cost_against_draws(series: Series, y: str) -> Any:
    """Memory or time against the number of draws M (paper 1, Fig. 1 and 6)."""
    figure = lines(series, "draws M", y)
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_yscale("log")
    return figure
