"""The step-size schedule of a sampler, and the steps at which its draws are kept."""

import math
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class Cyclic:
    """h_t = h₀ ½ [1 + cos(π mod(t, n) / n)], n = cycle (paper 4, section 5, where the / n is missing).

    The thermostat lags behind a falling step size: draws at cycle ends are colder than the posterior
    unless `thermostat_rate` is large.

    >>> bf.fit(model, loader, epochs=100, schedule=Cyclic(500))
    """

    cycle: int

    def __post_init__(self) -> None:
        _check("cycle", self.cycle)

    def factor(self, step: int) -> float:
        """h_t / h₀ of the step that follows `step` earlier ones."""
        return 0.5 * (1 + math.cos(math.pi * (step % self.cycle) / self.cycle))

    def __call__(self, optimizer: Optimizer, num_steps: int | None = None) -> LambdaLR:
        """As a torch scheduler, stepped after every step of the sampler; the length of the run does not matter."""
        return LambdaLR(optimizer, lambda step: self.factor(step))


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


def burn_in_steps(burn_in: float, num_steps: int | None) -> int | None:
    """A burn-in in steps, of a run of `num_steps` where it is a share below 1; None where that cannot be said."""
    if not 0 < burn_in < 1:
        return int(burn_in)
    return None if num_steps is None else int(burn_in * num_steps)


def check_burn_in(burn_in: float | None) -> None:
    """It must be a whole number of steps, or a share."""
    if burn_in is not None and burn_in >= 1 and burn_in != int(burn_in):
        raise ValueError(f"burn_in={burn_in!r} must be a whole number of steps, or a share below 1")


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1 (steps)")
