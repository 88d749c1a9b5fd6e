"""Step-size schedules of a sampler, and the steps at which its draws are kept.

A schedule is a factor on the step size as a function of the number of steps taken. It is what
`bf.fit(schedule=...)` takes, and what `.scheduler(sampler)` turns into one of torch's.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class Schedule(ABC):
    """Members, in this order: `factor`."""

    @abstractmethod
    def factor(self, step: int) -> float:
        """h_t / h₀ of the step that follows `step` earlier ones."""

    def scheduler(self, optimizer: Optimizer) -> LambdaLR:
        """As a torch scheduler, stepped once after every step of the sampler."""
        return LambdaLR(optimizer, lambda step: self.factor(step))

    def __call__(self, optimizer: Optimizer, num_steps: int) -> LambdaLR:
        return self.scheduler(optimizer)


@dataclass(frozen=True)
class Constant(Schedule):
    """h_t = h₀."""

    def factor(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cyclic(Schedule):
    """h_t = h₀ ½ [1 + cos(π mod(t, n) / n)], n = cycle (paper 4, section 5, where the / n is missing).

    The thermostat lags behind a falling step size: draws at cycle ends are colder than the posterior
    unless `thermostat_rate` is large.
    """

    cycle: int

    def __post_init__(self) -> None:
        _check("cycle", self.cycle)

    def factor(self, step: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * (step % self.cycle) / self.cycle))


@dataclass(frozen=True)
class Warmup(Schedule):
    """Rising linearly to h₀ over `steps` steps, then as `then` from its own start.

    Before a `Cyclic` take whole cycles: the sample times count theirs from the first step.
    """

    steps: int
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        _check("steps", self.steps)

    def factor(self, step: int) -> float:
        return (step + 1) / self.steps if step < self.steps else self.then.factor(step - self.steps)


@dataclass(frozen=True)
class Polynomial(Schedule):
    """h_t = h₀ (1 + t / offset)^−power; Welling and Teh ask for a power in (0.5, 1]."""

    offset: float
    power: float = 0.55

    def __post_init__(self) -> None:
        if not self.offset > 0 or not self.power >= 0:
            raise ValueError(f"offset={self.offset!r} must be positive and power={self.power!r} not negative")

    def factor(self, step: int) -> float:
        return (1 + step / self.offset) ** -self.power


@dataclass(frozen=True)
class SampleTimes:
    """After which steps a draw is kept, counted from 1.

    After `burn_in` steps: every `every` steps; or, with `cycle`, in the last `part` of every cycle, every
    `every` steps counted back from its end (None: at the end only). A cycle that ends in the burn-in
    gives none.
    """

    burn_in: int = 0
    every: int | None = 1
    cycle: int | None = None
    part: float = 1.0

    def __post_init__(self) -> None:
        if self.burn_in < 0:
            raise ValueError(f"burn_in={self.burn_in!r} must not be negative (steps)")
        for name in ("every", "cycle"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name))
        if self.cycle is None and self.every is None:
            raise ValueError("every=None needs a cycle: draws are kept at its ends")
        if not 0 < self.part <= 1:
            raise ValueError(f"part={self.part!r} must lie in (0, 1]")

    def due(self, step: int) -> bool:
        """Is the state after `step` steps a draw to keep?"""
        if step <= self.burn_in:
            return False
        if self.cycle is None:
            assert self.every is not None
            return (step - self.burn_in) % self.every == 0
        left = -step % self.cycle  # steps to the end of the cycle
        return left % (self.every or self.cycle) == 0 and left < self.part * self.cycle


@dataclass(frozen=True)
class EvenTimes:
    """`count` draws spread evenly over the `length` steps after `burn_in`, the last at their end; one after every step
    where there are not that many."""

    burn_in: int
    length: int
    count: int

    def due(self, step: int) -> bool:
        """Is the state after `step` steps a draw to keep?"""
        past = step - self.burn_in
        if past <= 0 or self.length < self.count:
            return past > 0
        return past * self.count // self.length > (past - 1) * self.count // self.length


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1 (steps)")
