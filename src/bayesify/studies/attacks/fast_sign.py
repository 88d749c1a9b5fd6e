"""The iterative fast sign method, targeted or not (paper 5, Section 6.3; Kurakin et al. 2016)."""

from typing import Any

from torch import Tensor, nn

from bayesify.studies.attacks.iteration import iterates


def fast_sign(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    step: float,
    num_steps: int,
    eps: float | None = None,
    targeted: bool = False,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of fixed length along the sign of the gradient; without `eps` there is no ball.

    >>> attacked = fast_sign(model, x, target, step=0.01, num_steps=20, targeted=True, num_draws=10)
    """
    settings = {"step": step, "num_steps": num_steps, "eps": eps, "targeted": targeted, **options}
    *_, last = iterates(model, x, y, **settings)
    return last
