"""Figures of the phase transition like the paper's Figs. 1, 3, 4 and 5; matplotlib is imported when one is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.studies.diagnostics.phase_transition import EDGES, LOG_KAPPA_0, Row, epoch_of_transition


def accuracy_figure(rows: Sequence[Row]) -> Any:
    """Accuracy of the mean network and of the ensemble over the epochs (Fig. 1)."""
    figure, axes = _figure()
    for mode, alpha in (("ensemble", 1.0), ("stochastic", 0.5), ("deterministic", 1.0)):
        axes.plot([row.epoch for row in rows], [getattr(row, mode) for row in rows], label=mode, alpha=alpha)
    axes.set(xlabel="epoch", ylabel="accuracy", ylim=(0, 1))
    axes.legend()
    return figure


def kappa_figure(rows: Sequence[Row], name: str, epochs: Sequence[int] | None = None) -> Any:
    """Histograms of log₁₀ κ of one weight before, during and after the transition (Fig. 3).

    epochs: which to show; without it, of those that were measured, the first, the one of the transition (without a
            transition the middle one) and the last.
    """
    measured = [row for row in rows if name in row.histogram]
    if not measured:
        raise ValueError(f"name={name!r}: κ was not recorded for it; give PhaseRecorder a kappa_loader")
    if epochs is None:
        at = epoch_of_transition(rows)
        passed = [row for row in measured if at is not None and row.epoch >= at]
        during = passed[0] if passed else measured[len(measured) // 2]
        epochs = [measured[0].epoch, during.epoch, measured[-1].epoch]
    figure, axes = _figure()
    shown = [row for row in measured if row.epoch in epochs]
    for row in shown:
        axes.stairs(row.histogram[name], EDGES, fill=True, alpha=0.4, label=f"epoch {row.epoch}")
    axes.axvline(LOG_KAPPA_0, color="red", label="threshold")
    filled = [i for i in range(len(EDGES) - 1) if any(row.histogram[name][i] for row in shown)]
    limits = (EDGES[filled[0]] - 0.5, max(EDGES[filled[-1] + 1], LOG_KAPPA_0) + 0.5) if filled else None
    axes.set(xlabel="log₁₀ κ", ylabel="weights", yscale="log", xlim=limits)
    axes.legend(loc="upper left")
    return figure


def above_figure(rows: Sequence[Row], name: str) -> Any:
    """Weights with κ above the threshold, beside the accuracy of the mean network (Fig. 4)."""
    figure, axes = _figure()
    measured = [row for row in rows if name in row.num_above]
    epochs, accuracy = [row.epoch for row in rows], [row.deterministic for row in rows]
    axes.plot(epochs, accuracy, label="deterministic accuracy")
    axes.set(xlabel="epoch", ylabel="accuracy", ylim=(0, 1))
    right = axes.twinx()
    epochs, above = [row.epoch for row in measured], [row.num_above[name] for row in measured]
    right.plot(epochs, above, color="tab:red", label="weights above the threshold")
    right.set_ylabel("weights with κ > κ₀")
    right.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def sparsity_figure(curves: Mapping[str, Sequence[Any]], full: float | None = None) -> Any:
    """Accuracy and compression over the threshold of κ (Fig. 5).

    curves: what `compress.sparsity_curve` returned, by label ("zero", "mean"); full: accuracy of the whole ensemble.
    """
    if not curves:
        raise ValueError("curves is empty: give it what compress.sparsity_curve returned, by label")
    figure, axes = _figure()
    right = axes.twinx()
    for label, points in curves.items():
        thresholds = [point.threshold for point in points]
        axes.plot(thresholds, [point.accuracy for point in points], label=f"accuracy, rest set to {label}")
    compression = [point.compression for point in points]
    right.plot(thresholds, compression, "--", color="grey", label="weights / kept")
    if full is not None:
        axes.axhline(full, color="red", label="full ensemble")
    axes.set(xlabel="threshold of κ", ylabel="accuracy", xscale="log")
    right.set(ylabel="weights / kept weights", yscale="log")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    return figure, figure.add_subplot()
