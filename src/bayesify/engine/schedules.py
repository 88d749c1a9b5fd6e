"""Learning-rate schedules by name, stepped once per optimiser step."""

import math
import warnings
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from bayesify.names import lookup

LAYOUT = ("total_steps", "_schedule_phases")  # of a one-cycle schedule, by the number of steps


def cosine(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """lr · ½ (1 + cos(π t / T))."""
    return LambdaLR(optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * min(t / num_steps, 1))))


def linear(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """lr · (1 − t / T)."""
    return LambdaLR(optimizer, lambda t: max(1 - t / num_steps, 0.0))


def onecycle(optimizer: Optimizer, num_steps: int) -> OneCycleLR:
    """Up to lr over the first 30 % of the run and down again (torch's OneCycleLR). Momentum goes the other way, by
    0.05 about that of SGD and about Adam's 0.9; an optimiser without one stays so."""
    rates = [group["lr"] for group in optimizer.param_groups]
    momentum = optimizer.defaults.get("momentum", 0.9 if "betas" in optimizer.defaults else 0.0)
    return OneCycleLR(
        optimizer,
        rates,
        total_steps=num_steps + 1,
        cycle_momentum=momentum > 0,
        base_momentum=max(momentum - 0.05, 0.0),
        max_momentum=min(momentum + 0.05, 0.99),
    )


def constant(optimizer: Optimizer, num_steps: int) -> None:
    """The same throughout, where a recipe would have another."""


SCHEDULES: dict[str, Callable[[Optimizer, int], Any]] = {
    "constant": constant,
    "cosine": cosine,
    "linear": linear,
    "onecycle": onecycle,
}


def make_schedule(
    schedule: str | Callable[..., Any] | None, optimizer: Optimizer, num_steps: int
) -> Any | None:
    """A scheduler by name or from the user's own function of (optimizer, num_steps); None for a constant rate."""
    if schedule is None:
        return None
    if isinstance(schedule, str):
        return lookup(SCHEDULES, schedule, "schedule")(optimizer, num_steps)
    return schedule(optimizer, num_steps)


def load_schedule(schedule: Any, stored: dict[str, Any], before: int | None, now: int) -> str | None:
    """Go on where a stored schedule was. One that was laid out for another number of steps is laid out anew, and a
    note says where that makes its rate jump."""
    grown = before not in (None, now) and isinstance(schedule, LambdaLR | OneCycleLR)
    layout = {name: value for name, value in vars(schedule).items() if name in LAYOUT} if grown else {}
    schedule.load_state_dict(stored | layout)
    if not grown or schedule.last_epoch > now:
        return None
    rate = schedule.optimizer.param_groups[0]["lr"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is asked between two steps
        target = schedule.get_lr()[0]
    if math.isclose(rate, target, rel_tol=1e-6):
        return None
    return (
        f"the schedule was laid out for {before} steps and is now for {now}: "
        f"the learning rate jumps from {rate:.3g} to {target:.3g}"
    )
