"""A `Monitor` written down while `bf.fit` trains: temperature, thermostat and loss at every look, as a JSON file."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from bayesify.atomic import read_json, write_text
from bayesify.checks import check_content
from bayesify.samplers import Sampler
from bayesify.studies.diagnostics.monitor import Monitor, relative

COLUMNS = ("step", "kinetic", "thermostat", "predicted", "loss")


class SamplerRecorder:
    """Means over all coordinates of all sampled parameters; temperatures in units of T, thermostats in units of D.

    path:  written after every epoch, and read first if it is there, so that a run may resume
    every: steps between two looks

    >>> recorder = SamplerRecorder("sampler.json")
    >>> bf.fit(model, loader, epochs=9, optimizer=recorder.optimizer(model, lr=1e-3), on_epoch=recorder.record)
    """

    def __init__(self, path: str | Path, every: int = 10) -> None:
        self.path, self.every = Path(path), every
        self.monitor: Monitor | None = None
        self.before: list[dict[str, float]] = read_json(self.path) if self.path.exists() else []
        check_content(self.before, list[Mapping[str, float | None]], self.path)

    def optimizer(self, model: Any, lr: float | None = None) -> Callable[[Iterable[Any]], Sampler]:
        """For `bf.fit(optimizer=)`: the model's sampler, watched."""

        def make(_: Iterable[Any]) -> Sampler:
            sampler = model.optimizer(lr=lr)
            self.monitor = Monitor(sampler, model, self.every)
            return sampler

        return make

    def record(self, model: Any, epoch: int) -> None:
        """Write everything seen so far."""
        new = self.rows()
        first = new[0]["step"] if new else math.inf
        rows = [row for row in self.before if row["step"] < first] + new
        write_text(self.path, json.dumps(rows))

    def rows(self) -> list[dict[str, float]]:
        """One row for every look of this process; what the sampler does not have is left out."""
        if self.monitor is None:
            raise RuntimeError("nothing is watched yet: give bf.fit optimizer=recorder.optimizer(model, lr)")
        columns: dict[str, list[float]] = {"step": list(map(float, self.monitor.steps))}
        weighed: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in COLUMNS[1:4]}
        for p, group, series in self.monitor.watched():
            for name, values in relative(series, group).items():
                weighed[name].append((p.numel(), values))
        for name, parts in weighed.items():
            if parts and all(len(values) == len(columns["step"]) for _, values in parts):
                weights = torch.tensor([n for n, _ in parts], dtype=torch.float64)
                looks = torch.tensor([values for _, values in parts], dtype=torch.float64)
                columns[name] = (weights @ looks / weights.sum()).tolist()
        if len(self.monitor.losses.means) == len(columns["step"]):
            columns["loss"] = self.monitor.losses.means
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
