"""Sums of random and deterministic operands."""

from typing import Any

import torch
from torch import Tensor

from bayesify.moments.carrier import Moments, rule


@rule(
    torch.add,
    torch.Tensor.add,
    torch.Tensor.add_,
    torch.Tensor.__add__,
    torch.Tensor.__radd__,
    torch.Tensor.__iadd__,
)
def add(x: Any, y: Any, *, alpha: float = 1) -> Moments:
    """E(x + αy) = E x + α E y;  Var = Var x + α² Var y, x and y taken as independent (residual sums).

    x + αx is (1 + α) x, with (1 + α)² Var x.
    """
    if x is y:
        return Moments((1 + alpha) * x.mean, (1 + alpha) ** 2 * x.var)
    if not isinstance(x, Moments):
        mean = torch.add(x, y.mean, alpha=alpha)
        return Moments(mean, (alpha**2 * y.var).expand(mean.shape))
    if not isinstance(y, Moments):
        mean = torch.add(x.mean, y, alpha=alpha) if isinstance(y, Tensor) else x.mean + alpha * y
        return Moments(mean, x.var.expand(mean.shape))
    return Moments(torch.add(x.mean, y.mean, alpha=alpha), torch.add(x.var, y.var, alpha=alpha**2))
