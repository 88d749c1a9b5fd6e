"""A picture of a `Monitor`: temperatures and thermostats over the run, and the memory of the loss."""

from pathlib import Path
from typing import Any


def plot(monitor: Any, path: str | Path) -> None:
    """Kinetic temperature and thermostat (as a share of D) of every parameter against the step, and the
    autocorrelation of the loss where it was seen; written to `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"diagnostics.plot needs {error.name}: pip install 'bayesify[all]'") from None
    heard = len(monitor.losses.settled()) >= 4
    figure = Figure(figsize=(13.5 if heard else 9, 3.5), layout="constrained")
    hot, slow, *rest = figure.subplots(1, 3 if heard else 2)
    for group in monitor.sampler.param_groups:
        for p in group["params"]:
            series = monitor.series.get(p)
            if series is None:
                continue
            name = monitor.names.get(id(p))
            for axes, values, scale in (
                (hot, series.kinetic, group["temperature"]),
                (slow, series.thermostat, group.get("noise", 1.0)),
            ):
                steps = [monitor.every * (i + 1) for i in range(len(values))]
                axes.plot(steps, [v / scale for v in values], linewidth=0.8, label=name)
    hot.axhline(1.0, color="black", linestyle=":")
    hot.set(title="kinetic temperature", xlabel="step")
    slow.set(title="thermostat ξ / D", xlabel="step")
    if monitor.names and len(monitor.series) <= 8:
        slow.legend(fontsize="x-small")
    for axes in rest:
        rho = monitor.losses.autocorrelation()
        rho = rho[: max(2, len(rho) // 4)]  # beyond it there is little but noise
        axes.bar([monitor.every * lag for lag in range(len(rho))], rho.tolist(), width=0.8 * monitor.every)
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set(title="autocorrelation of the loss", xlabel="steps apart")
    figure.savefig(path)
