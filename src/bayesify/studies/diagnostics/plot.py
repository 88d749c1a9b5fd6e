"""A picture of a `Monitor`: temperatures and thermostats over the run, and the memory of the loss."""

from pathlib import Path
from typing import Any

from bayesify.studies.diagnostics.monitor import relative


def plot(monitor: Any, path: str | Path) -> None:
    """Kinetic temperature and thermostat (as a share of D) of every parameter against the step, where the sampler has
    them, and the autocorrelation of the loss where it was seen; written to `path`.

    >>> bf.diagnostics.plot(monitor, "chain.png")
    """
    from bayesify.data.files import import_optional  # here: few programs need the room of data

    Figure = import_optional("matplotlib.figure", "matplotlib", "diagnostics.plot").Figure
    kinetic, thermostats = _curves(monitor)
    rho = monitor.losses.autocorrelation() if len(monitor.losses.settled()) >= 4 else None
    panels = [bool(kinetic), bool(thermostats), rho is not None]
    if not any(panels):
        raise RuntimeError(f"nothing to draw yet: take at least {9 * monitor.every} steps")
    figure = Figure(figsize=(4.5 * sum(panels), 3.5), layout="constrained")
    rest = list(figure.subplots(1, sum(panels), squeeze=False)[0])
    for title, curves in (("kinetic temperature", kinetic), ("thermostat ξ / D", thermostats)):
        if not curves:
            continue
        axes = rest.pop(0)
        for name, values in curves:
            axes.plot(monitor.steps[-len(values) :], values, linewidth=0.8, label=name)
        axes.set(title=title, xlabel="step")
        if curves is kinetic:
            axes.axhline(1.0, color="black", linestyle=":")
        if len(curves) <= 8 and (curves is thermostats or not thermostats):
            axes.legend(fontsize="x-small")
    if rho is not None:
        rho = rho[: max(2, len(rho) // 4)]  # beyond it there is little but noise
        axes = rest.pop()
        axes.bar([monitor.every * lag for lag in range(len(rho))], rho.tolist(), width=0.8 * monitor.every)
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set(title="autocorrelation of the loss", xlabel="steps apart")
    figure.savefig(path)


def _curves(monitor: Any) -> tuple[list[tuple[str, list[float]]], list[tuple[str, list[float]]]]:
    """Kinetic temperature / T and ξ / D of every parameter by its name; none where the sampler has none, or D = 0."""
    kinetic, thermostats = [], []
    for p, group, series in monitor.watched():
        name, scaled = monitor.names.get(id(p)), relative(series, group)
        kinetic += [(name, scaled["kinetic"])] if "kinetic" in scaled else []
        thermostats += [(name, scaled["thermostat"])] if "thermostat" in scaled else []
    return kinetic, thermostats
