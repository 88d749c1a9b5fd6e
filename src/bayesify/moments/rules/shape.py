"""Operations that only move entries: the same for mean and variance."""

from functools import partial
from typing import Any

import torch

from bayesify.moments.carrier import RULES, Moments


def moved(operation: Any, x: Moments, *args: Any, **kwargs: Any) -> Moments:
    """op(x) has mean op(E x) and variance op(Var x)."""
    return Moments(operation(x.mean, *args, **kwargs), operation(x.var, *args, **kwargs))


for _operation in (
    torch.reshape,
    torch.flatten,
    torch.Tensor.reshape,
    torch.Tensor.flatten,
    torch.Tensor.view,
    torch.Tensor.t,
    torch.Tensor.transpose,
    torch.Tensor.detach,
    torch.real,
    torch.Tensor.contiguous,
):
    RULES[_operation] = partial(moved, _operation)
