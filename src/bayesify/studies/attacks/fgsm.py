"""The fast gradient sign method (Goodfellow et al. 2014)."""

from typing import Any

from torch import Tensor, nn

from bayesify.studies.attacks.iteration import iterates


def fgsm(model: nn.Module, x: Tensor, y: Tensor, eps: float, **options: Any) -> Tensor:
    """x + eps sign(∂loss/∂x), inside `bounds`: one step. Options are those of `iterates`.

    >>> attacked = fgsm(model, x, y, eps=0.1, num_draws=10)
    """
    *_, last = iterates(model, x, y, step=eps, num_steps=1, **options)
    return last
