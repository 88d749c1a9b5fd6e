"""The attacks by their names, each a setting of one iteration."""

from typing import Any

from torch import Tensor, nn

from bayesify.checks import Count, Positive, checked
from bayesify.studies.attacks.iteration import iterates


@checked
def fgsm(model: nn.Module, x: Tensor, y: Tensor, eps: Positive, **options: Any) -> Tensor:
    """x + eps sign(∂loss/∂x), inside `bounds`: one step (Goodfellow et al. 2014). Options are those of `iterates`.

    >>> attacked = fgsm(model, x, y, eps=0.1, num_draws=10)
    """
    *_, last = iterates(model, x, y, step=eps, num_steps=1, **options)
    return last


@checked
def fast_sign(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    step: Positive,
    num_steps: Count,
    eps: Positive | None = None,
    targeted: bool = False,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of fixed length along the sign of the gradient; without `eps` there is no ball.

    The iterative fast sign method, targeted or not (paper 5, Section 6.3; Kurakin et al. 2016).

    >>> attacked = fast_sign(model, x, target, step=0.01, num_steps=20, targeted=True, num_draws=10)
    """
    options |= {"eps": eps, "targeted": targeted}
    *_, last = iterates(model, x, y, step=step, num_steps=num_steps, **options)
    return last


@checked
def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: Positive,
    step: Positive | None = None,
    num_steps: Count = 10,
    norm: str = "linf",
    random_start: bool = True,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of length `step` (2.5 eps/num_steps without it) from a random point of the ball.

    Projected gradient descent in a ball of the L∞ or L2 norm (Madry et al. 2018).

    >>> attacked = pgd(model, x, y, eps=0.5, norm="l2", num_steps=20)
    """
    options |= {"eps": eps, "num_steps": num_steps, "norm": norm, "random_start": random_start}
    *_, last = iterates(model, x, y, step=2.5 * eps / num_steps if step is None else step, **options)
    return last
