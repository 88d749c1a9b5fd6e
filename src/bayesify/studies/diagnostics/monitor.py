"""Temperatures and thermostats of a running sampler, parameter by parameter, and the memory of its loss."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.objectives import Loss
from bayesify.samplers import Sampler
from bayesify.samplers.convergence import autocorrelation, ess
from bayesify.samplers.kinetic import kinetic
from bayesify.studies.diagnostics.verdict import independent, verdict


class Losses:
    """The training loss that a model returns, one mean for every `every` steps.

    A mean, because the loss of one mini-batch is mostly that batch's; and read from the device only then.
    """

    def __init__(self, model: nn.Module | None, every: int) -> None:
        self.every = every
        self.pending: list[Tensor] = []
        self.means: list[float] = []
        self.handle = None
        if model is not None:  # `disable` loads the compiler: not before there is something to hear
            self.handle = model.register_forward_hook(torch.compiler.disable(self._hear))

    def _hear(self, module: Any, args: Any, output: Any) -> None:
        if isinstance(output, Loss) and output.total.requires_grad:
            self.pending.append(output.total.detach().clone())  # a CUDA graph writes to the same place again

    def look(self) -> None:
        """The losses since the last look as one number."""
        if self.pending:
            self.means.append(torch.stack(self.pending).mean().item())
            self.pending = []

    def close(self) -> None:
        """Hear no more."""
        if self.handle is not None:
            self.handle.remove()

    def settled(self) -> Tensor:
        """The means without their first quarter."""
        return torch.tensor(self.means[len(self.means) // 4 :], dtype=torch.float64)

    def autocorrelation(self) -> Tensor:
        """ρ at lags of 0, every, 2 · every … steps."""
        return autocorrelation(self.settled())

    def independent(self) -> float | None:
        """How many independent values the means are worth; None where there are too few to say."""
        series = self.settled()
        return ess(series[None]).item() if len(series) >= 8 and series.std() > 0 else None

    def __str__(self) -> str:
        size, worth = len(self.settled()), self.independent()
        if worth is None:
            return "loss: too few values to tell how long it is correlated"
        steps = self.every * size / worth
        return (
            f"loss: correlated over {steps:.0f} steps; {self.every * size} steps are worth "
            f"{independent(worth)}. Draws much closer than that repeat each other"
        )


class Row(NamedTuple):
    """One parameter. Temperatures are relative to the sampler's own: 1 is right."""

    name: str
    kinetic: float  # E p K′(p) / T
    kinetic_error: float  # its standard error
    configurational: float  # E (θ − E θ) ∇U / T
    configurational_error: float
    thermostat: float  # E ξ
    predicted: float  # h Var G / 2mT
    noise: float  # D


class Series:
    """What is remembered of one parameter."""

    def __init__(self, parameter: Tensor) -> None:
        self.origin = parameter.detach().clone()
        self.moved = torch.zeros_like(self.origin)  # Σ (θ − θ₀)
        self.pulled = torch.zeros_like(self.origin)  # Σ G
        self.before: Tensor | None = None  # G of the step before
        self.kinetic: list[float] = []
        self.virial: list[float] = []  # mean of (θ − θ₀) G
        self.thermostat: list[float] = []
        self.gradient_noise: list[float] = []  # h Var G / m, with the h and m of that step


class Monitor:
    """Watches a sampler from now on.

        kinetic temperature           E p K′(p)               1 whatever the potential is
        configurational temperature   E (θ − E θ) ∂U/∂θ       1 where the weights are at the right temperature
        thermostat                    E ξ against h Var G / 2m
        loss                          over how many steps it is correlated

    The kinetic temperature is of samplers with a state "momentum" and a mass, the thermostat of those with a state
    "thermostat" too. Averages are over the coordinates of a parameter and over steps. Var G is half the mean square of
    the difference of two successive gradients. It keeps four copies of the weights.

    sampler: of bayesify.samplers
    model:   whose parameters they are, for the names; of a Bayesian module also the loss that it returns
    every:   steps between two looks; two of each look's steps cost a pass over the weights

    >>> monitor = bf.diagnostics.Monitor(sampler, model)
    >>> ...  # train
    >>> print(monitor)
    """

    def __init__(self, sampler: Sampler, model: nn.Module | None = None, every: int = 10) -> None:
        if every < 2:
            raise ValueError(f"every={every!r} must be at least 2: two successive gradients make one look")
        if not isinstance(sampler, Sampler):
            raise TypeError(
                f"sampler={type(sampler).__name__} must be one of bf.samplers: nothing else has a temperature"
            )
        self.sampler = sampler
        self.every = every
        everything = [p for group in sampler.param_groups for p in group["params"]]
        self.names = {id(p): f"parameter {index}" for index, p in enumerate(everything)}
        if model is not None:
            self.names |= {id(p): name for name, p in model.named_parameters()}
        self.series: dict[Any, Series] = {}
        self.steps: list[int] = []  # of the sampler, at each look
        self.losses = Losses(model, every)
        self.handle = sampler.register_step_pre_hook(self._look)

    def close(self) -> None:
        """Watch no more."""
        self.handle.remove()
        self.losses.close()

    @torch.no_grad()
    def _look(self, sampler: Any, args: Any, kwargs: Any) -> None:
        phase = sampler.steps % self.every
        if phase < self.every - 2:
            return
        for group in sampler.param_groups:
            if group["temperature"] == 0:
                continue
            for p in group["params"]:
                if p.grad is not None:
                    self._record(p, group, phase == self.every - 1)
        if phase == self.every - 1:
            self.steps.append(sampler.steps + 1)
            self.losses.look()

    def _record(self, p: Tensor, group: dict[str, Any], second: bool) -> None:
        series = self.series.setdefault(p, Series(p))
        gradient = p.grad.detach() * self.sampler.num_data  # type: ignore[union-attr]
        if not second:
            series.before = gradient
            return
        state = self.sampler.state[p]
        moved = p.detach() - series.origin
        series.moved += moved
        series.pulled += gradient
        series.virial.append((moved * gradient).mean().item())
        mass = state.get("mass", group["mass"]) if "mass" in group else math.nan
        if series.before is not None:
            variance = ((gradient - series.before).square() / mass).mean().item() / 2
            series.gradient_noise.append(float(group["lr"]) * variance)
        if "momentum" in state and "mass" in group:
            momentum = state["momentum"]
            speed = kinetic(group.get("max_speed")).velocity(momentum, mass)
            series.kinetic.append((momentum * speed).mean().item())
            if {"thermostat_rate", "noise"} <= group.keys() and "thermostat" in state:
                series.thermostat.append(state["thermostat"].mean().item())

    def watched(self) -> list[tuple[Tensor, dict[str, Any], Series]]:
        """Every parameter of which something is remembered, its group, and what that is."""
        pairs = [(p, group) for group in self.sampler.param_groups for p in group["params"]]
        return [(p, group, self.series[p]) for p, group in pairs if p in self.series]

    def rows(self) -> list[Row]:
        """One row for every parameter that was sampled; the first quarter of the looks is left out of the means."""
        found = [self._row(p, group) for p, group, seen in self.watched() if len(seen.virial) >= 8]
        if not found and all(group["temperature"] == 0 for group in self.sampler.param_groups):
            raise RuntimeError("nothing to report: at temperature 0 the sampler optimises and does not draw")
        if not found:
            raise RuntimeError(f"nothing to report yet: take at least {9 * self.every} steps")
        return found

    def _row(self, p: Tensor, group: dict[str, Any]) -> Row:
        series, temperature = self.series[p], group["temperature"]
        count = len(series.virial)
        centre = (series.moved / count * series.pulled / count).mean().item()
        kinetic_mean, kinetic_error = _mean(series.kinetic)
        virial_mean, virial_error = _mean(series.virial, whole=True)
        thermostat, _ = _mean(series.thermostat)
        noise, _ = _mean(series.gradient_noise)
        return Row(
            self.names.get(id(p), "a parameter added later"),
            kinetic_mean / temperature,
            kinetic_error / temperature,
            (virial_mean - centre) / temperature,
            virial_error / temperature,
            thermostat,
            noise / (2 * temperature),
            group.get("noise", math.nan),
        )

    def drift(self) -> float:
        """How far the mean ξ moved between the last two quarters of the looks, as a share of D; the largest of those
        that are more than chance: ξ ~ N(·, κT), so a mean over n of them varies by √(κT/n)."""
        moved = [0.0]
        for p, group, seen in self.watched():
            quarter = len(seen.thermostat) // 4
            if quarter:
                third = sum(seen.thermostat[-2 * quarter : -quarter]) / quarter
                last = sum(seen.thermostat[-quarter:]) / quarter
                chance = math.sqrt(2 * group["thermostat_rate"] * group["temperature"] / p.numel())
                if abs(last - third) > 3 * chance:
                    moved.append(abs(last - third) / max(group["noise"], 1e-30))
        return max(moved)

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(row.name) for row in rows)
        momentum = not all(math.isnan(row.kinetic) for row in rows)
        columns = "kinetic T       config. T       thermostat  predicted   D" if momentum else "config. T"
        lines = [f"{'parameter':{width}}  {columns}"]
        for r in rows:
            hot = f"{r.kinetic:5.3f} ± {r.kinetic_error:5.3f}   " * momentum
            bound = f"{r.configurational:5.2f} ± {r.configurational_error:5.2f}"
            rest = f"   {r.thermostat:10.3g}  {r.predicted:9.3g}   {r.noise:.3g}" * momentum
            lines.append(f"{r.name:{width}}  {hot}{bound}{rest}")
        if self.losses.means:
            lines.append(str(self.losses))
        return "\n".join([*lines, *verdict(rows, self.drift(), loss_ess=self.losses.independent())])


def relative(series: Series, group: dict[str, Any]) -> dict[str, list[float]]:
    """Kinetic temperature / T, ξ / D and h Var G / 2mTD at each look."""
    temperature, noise = group["temperature"], group.get("noise")
    found = {"kinetic": [value / temperature for value in series.kinetic]} if series.kinetic else {}
    if series.thermostat and noise:
        found["thermostat"] = [value / noise for value in series.thermostat]
        scale = 1 / (2 * temperature * noise)
        found["predicted"] = [scale * value for value in series.gradient_noise]
    return found


def _mean(values: list[float], whole: bool = False) -> tuple[float, float]:
    """Mean and standard error of a correlated series; NaN where there is none."""
    if not values:
        return math.nan, math.nan
    series = torch.tensor(values if whole else values[len(values) // 4 :], dtype=torch.float64)
    if len(series) < 4:
        return series.mean().item(), math.inf
    size = ess(series[None]).item() if series.std() > 0 else len(series)
    return series.mean().item(), (series.std() / math.sqrt(size)).item()
