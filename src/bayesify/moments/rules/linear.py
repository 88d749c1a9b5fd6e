"""Linear maps: linear layers and convolutions, plain and transposed."""

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import RULES, Moments


def linear_map(
    operation: Any,
    x: Moments | Tensor,
    weight: Moments | Tensor,
    bias: Moments | Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Moments:
    """y = w·x + b, entries of w, x and b independent (paper 3, eq. 7 corrected).

    E y = E w·E x + E b;   Var y = Var w·((E x)² + Var x) + (E w)²·Var x + Var b
    """
    x_mean, x_var = _parts(x)
    w_mean, w_var = _parts(weight)
    b_mean, b_var = _parts(bias)
    mean = operation(x_mean, w_mean, b_mean, *args, **kwargs)
    var = None
    if w_var is not None:
        second = x_mean.square() if x_var is None else x_mean.square() + x_var
        var, b_var = operation(second, w_var, b_var, *args, **kwargs), None
    if x_var is not None:
        through = operation(x_var, w_mean.square(), b_var, *args, **kwargs)
        var = through if var is None else var + through
    elif var is None:  # only the bias is random
        var = operation(x_mean.new_zeros(x_mean.shape), w_mean, b_var, *args, **kwargs)
    return Moments(mean, var)


def _parts(value: Moments | Tensor | None) -> tuple[Any, Any]:
    """(mean, var); var is None for what is not random."""
    return (value.mean, value.var) if isinstance(value, Moments) else (value, None)


CONVOLUTIONS = (
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)
LINEAR_MAPS = (F.linear, *CONVOLUTIONS)
for _operation in LINEAR_MAPS:
    RULES[_operation] = partial(linear_map, _operation)
