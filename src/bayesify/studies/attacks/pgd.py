"""Projected gradient descent in a ball of the L∞ or L2 norm (Madry et al. 2018)."""

from typing import Any

from torch import Tensor, nn

from bayesify.studies.attacks.iteration import iterates


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    step: float | None = None,
    num_steps: int = 10,
    norm: str = "linf",
    random_start: bool = True,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of length `step` (2.5 eps/num_steps without it) from a random point of the ball.

    >>> attacked = pgd(model, x, y, eps=0.5, norm="l2", num_steps=20)
    """
    step = 2.5 * eps / num_steps if step is None else step
    settings: dict[str, Any] = {
        "step": step,
        "num_steps": num_steps,
        "eps": eps,
        "norm": norm,
        "random_start": random_start,
    }
    *_, last = iterates(model, x, y, **settings, **options)
    return last
