"""Learning-rate schedules by name, stepped once per optimiser step."""

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from bayesify.names import lookup


def cosine(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """lr · ½ (1 + cos(π t / T))."""
    return LambdaLR(optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * min(t / num_steps, 1))))


def linear(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """lr · (1 − t / T)."""
    return LambdaLR(optimizer, lambda t: max(1 - t / num_steps, 0.0))


def onecycle(optimizer: Optimizer, num_steps: int) -> OneCycleLR:
    """Up to lr over the first 30 % of the run and down again (torch's OneCycleLR, its defaults)."""
    return OneCycleLR(optimizer, [group["lr"] for group in optimizer.param_groups], total_steps=num_steps + 1)


SCHEDULES: dict[str, Callable[[Optimizer, int], Any]] = {
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


def changed_length(schedule: Any | None, before: int | None, now: int) -> str | None:
    """A note where a run goes on with a schedule laid out for another number of steps, so that its rate jumps."""
    if before in (None, now) or not isinstance(schedule, LambdaLR):  # one-cycle keeps the length it had
        return None
    rate = schedule.optimizer.param_groups[0]["lr"]
    target = schedule.base_lrs[0] * schedule.lr_lambdas[0](schedule.last_epoch)
    if math.isclose(rate, target, rel_tol=1e-6):
        return None
    return (
        f"the schedule was laid out for {before} steps and is now for {now}: "
        f"the learning rate jumps from {rate:.3g} to {target:.3g}"
    )


def check_length(schedule: Any | None, stored: dict[str, Any] | None, epochs: int, folder: str) -> None:
    """Refuse to go on beyond the end that a stored one-cycle schedule was laid out for."""
    if schedule is None or stored is None:
        return
    wanted, laid_out = schedule.state_dict().get("total_steps"), stored.get("total_steps")
    if wanted is not None and laid_out is not None and wanted > laid_out:
        raise ValueError(
            f"epochs={epochs!r} is longer than the run in {folder}: its one-cycle schedule was laid out for "
            f"{laid_out} steps, not for {wanted}. Keep its epochs, or start in another folder"
        )
