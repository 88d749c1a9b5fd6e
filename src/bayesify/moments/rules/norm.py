"""Normalisation layers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import Moments, rule


@rule(F.batch_norm)
def batch_norm(
    x: Any,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Moments:
    """Var y = γ² Var x / (v + ε), v the running variance; γ and β may be random themselves."""
    if not isinstance(x, Moments):  # only γ or β is random
        x = Moments(x, torch.zeros_like(x))
    if training:
        raise NotImplementedError("the moments pass runs batch norm in eval mode only: call model.eval()")
    shape = (1, -1) + (1,) * (x.mean.dim() - 2)  # (1, channels, 1, ...)
    gain = (running_var + eps).rsqrt().view(shape)
    centred = (x.mean - running_mean.view(shape)) * gain
    var = x.var * gain.square()
    gamma, gamma_var = _parts(weight, shape, 1.0)
    beta, beta_var = _parts(bias, shape, 0.0)
    return Moments(
        gamma * centred + beta,
        (gamma**2 + gamma_var) * var + gamma_var * centred.square() + beta_var,
    )


def _parts(value: Any, shape: tuple[int, ...], default: float) -> tuple[Any, Any]:
    if value is None:
        return default, 0.0
    if isinstance(value, Moments):
        return value.mean.view(shape), value.var.view(shape)
    return value.view(shape), 0.0
