"""A picture of a `Monitor`: temperatures and thermostats over the run."""

from pathlib import Path
from typing import Any


def plot(monitor: Any, path: str | Path) -> None:
    """Kinetic temperature and thermostat (as a share of D) of every parameter against the step, written to `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"diagnostics.plot needs {error.name}: pip install 'bayesify[all]'") from None
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    hot, slow = figure.subplots(1, 2)
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
    figure.savefig(path)
