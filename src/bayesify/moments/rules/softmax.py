"""Softmax and its logarithm in closed form."""

from typing import Any

import torch
from torch import Tensor

from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.arithmetic import negative
from bayesify.moments.values import Moments, Simplex


@rule(*spelled("softmax"))
def softmax(x: Moments, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Moments | Simplex:
    """Var p_i = Σ_j J_ij² s_j = p_i²[(1 − 2p_i)s_i + Σ_j p_j²s_j], J = diag p − ppᵀ (eq. 9, J² by entry)."""
    if dim is None:
        raise ValueError("softmax in the moments pass needs dim=")
    p = x.mean.softmax(dim, dtype=dtype)
    s = x.var if dtype is None else x.var.to(dtype)
    var = softmax_var(p, s, dim)
    if dim in (-1, p.dim() - 1):
        return Simplex(p, var, s)
    return Moments(p, var)


rule(torch.nn.functional.softmin)(lambda x, *args, **kwargs: softmax(negative(x), *args, **kwargs))


def softmax_var(p: Tensor, s: Tensor, dim: int = -1) -> Tensor:
    """At most p(1 − p), the variance of a p that is 0 or 1: first order knows no bound and would grow with s."""
    square = p.square()
    first_order = square * ((1 - 2 * p) * s + (square * s).sum(dim, keepdim=True)).clamp_min(0)
    return torch.minimum(first_order, p - square)


@rule(*spelled("log_softmax"))
def log_softmax(x: Moments, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Moments:
    """y_i = x_i − log Σ exp x: Var y_i = (1 − 2p_i)s_i + Σ_j p_j²s_j."""
    if dim is None:
        raise ValueError("log_softmax in the moments pass needs dim=")
    y = x.mean.log_softmax(dim, dtype=dtype)
    p = y.exp()
    var = (1 - 2 * p) * x.var + (p.square() * x.var).sum(dim, keepdim=True)
    return Moments(y, var.clamp_min(0))


@rule(*spelled("logsumexp"))
def logsumexp(x: Moments, dim: Any, keepdim: bool = False) -> Moments:
    """Var = Σ_j p_j²s_j."""
    total = x.mean.logsumexp(dim, keepdim=True)
    p = (x.mean - total).exp()
    var = (p.square() * x.var).sum(dim, keepdim=keepdim)
    return Moments(torch.logsumexp(x.mean, dim, keepdim), var)
