"""Elementwise non-linearities to first order: E f(x) = f(E x), Var f(x) = f′(E x)² Var x (paper 3, eq. 4 and 5)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.registry import RULES, rule, spelled
from bayesify.moments.rules.arithmetic import mul
from bayesify.moments.rules.extremes import extreme_of_two
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Gaussian, Moments, as_moments


def scaled(mean: Tensor, slope: Tensor, x: Any) -> Any:
    """Var y = slope² Var x; of a full covariance Cov y = Cov x ∘ slope slopeᵀ."""
    if isinstance(x, Gaussian):
        flat = slope.flatten(1)
        cov = x.cov * flat[:, :, None] * flat[:, None, :]
        return Gaussian.made(mean, cov, (x, lambda rows: rows * slope[:, None]))
    return Moments(mean, slope.square() * x.var)


def first_order(function: Any, derivative: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """f(E x) and f′(E x)² Var x; `derivative` gets E x, f(E x) and the other arguments of the function."""
    y = function(x.mean, *args, **kwargs)
    return scaled(y, derivative(x.mean, y, *args, **kwargs), x)


def passed(function: Any, inside: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Of a function whose derivative is 1 where `inside` and 0 elsewhere: Var x there, else 0."""
    y = function(x.mean, *args, **kwargs)
    through = inside(x.mean, *args, **kwargs)
    if isinstance(x, Gaussian):
        return scaled(y, through.to(y.dtype), x)
    return Moments(y, torch.where(through, x.var, 0.0))


def register(how: Any, table: dict[str, Callable[..., Tensor]]) -> None:
    """`how` for every function of a table, whose keys are its names; in place it has an underscore behind them."""
    for names, of in table.items():
        known = spelled(*(name + end for name in names.split() for end in ("", "_")))
        rule(*known)(partial(how, known[0], of))


def normal_density(x: Tensor) -> Tensor:
    """φ(x)."""
    return (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)


def gelu_slope(m: Tensor, y: Tensor, approximate: str = "none") -> Tensor:
    """GELU′ = Φ(x) + x φ(x); of the tanh form ½(1 + t) + ½ x (1 − t²) u′, t = tanh u, u = √(2/π)(x + 0.044715 x³)."""
    if approximate == "tanh":
        c = math.sqrt(2 / math.pi)
        t = (c * (m + 0.044715 * m**3)).tanh()
        return 0.5 * (1 + t) + 0.5 * m * (1 - t.square()) * c * (1 + 3 * 0.044715 * m.square())
    return torch.special.ndtr(m) + m * (-0.5 * m.square()).exp() / math.sqrt(2 * math.pi)


def silu_slope(m: Tensor, y: Tensor) -> Tensor:
    """s + x s (1 − s), s = sigmoid x."""
    s = m.sigmoid()
    return s * (1 + m * (1 - s))


def mish_slope(m: Tensor, y: Tensor) -> Tensor:
    """Of x t, t = tanh(softplus x): t + x (1 − t²) sigmoid(x)."""
    t = F.softplus(m).tanh()
    return t + m * (1 - t.square()) * m.sigmoid()


def hardswish_slope(m: Tensor, y: Tensor) -> Tensor:
    """Of x (x + 3)/6 between −3 and 3: (2x + 3)/6 there, 0 below and 1 above."""
    return torch.where(m > -3, torch.where(m < 3, (2 * m + 3) / 6, 1.0), 0.0)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

#: names -> f′ of x and y = f(x)
SLOPES: dict[str, Callable[..., Tensor]] = {
    "leaky_relu": lambda m, y, negative_slope=0.01: torch.where(m > 0, torch.ones_like(m), negative_slope),
    "hardsigmoid": lambda m, y: torch.where(m.abs() < 3, torch.full_like(m, 1 / 6), 0.0),
    "elu": lambda m, y, alpha=1.0: torch.where(m > 0, 1.0, alpha * m.clamp_max(0).exp()),
    "celu": lambda m, y, alpha=1.0: (m / alpha).clamp_max(0).exp(),
    "selu": lambda m, y: torch.where(m > 0, SELU_SCALE, SELU_SCALE * SELU_ALPHA * m.clamp_max(0).exp()),
    "gelu": gelu_slope,
    "silu": silu_slope,
    "mish": mish_slope,
    "hardswish": hardswish_slope,
    "softplus": lambda m, y, beta=1.0, threshold=20.0: (beta * m).sigmoid(),
    "softsign": lambda m, y: (1 + m.abs()).pow(-2),
    "sigmoid expit": lambda m, y: y * (1 - y),
    "logsigmoid": lambda m, y: (-m).sigmoid(),
    "tanh": lambda m, y: 1 - y.square(),
    "tanhshrink": lambda m, y: m.tanh().square(),
}
register(first_order, SLOPES)

#: names -> where f′ = 1; elsewhere it is 0
PASSING: dict[str, Callable[..., Tensor]] = {
    "relu": lambda m: m > 0,
    "softshrink": lambda m, lambd=0.5: m.abs() > lambd,
    "hardshrink": lambda m, lambd=0.5: m.abs() > lambd,
    "threshold _threshold": lambda m, threshold, value: m > threshold,
}
register(passed, PASSING)


@rule(*spelled("prelu"))
def prelu(x: Any, weight: Any) -> Moments:
    """The slope a of the negative half may be random too: Var (a x) = a² Var x + Var a ((E x)² + Var x)."""
    (mean, var), (a, a_var) = as_moments(x), as_moments(weight)
    shape = (1, -1) + (1,) * (mean.dim() - 2) if a.numel() > 1 else (1,) * mean.dim()
    negative = a.view(shape).square() * var + a_var.view(shape) * (mean.square() + var)
    return Moments(F.prelu(mean, a), torch.where(mean > 0, var, negative))


@rule(F.rrelu, *spelled("rrelu_"))
def rrelu(x: Moments, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Moments:
    """In training the slope of the negative half is uniform in [lower, upper], else the mean of both."""
    slope = torch.full((1,), (lower + upper) / 2, dtype=x.mean.dtype, device=x.mean.device)
    spread = torch.full_like(slope, (upper - lower) ** 2 / 12 if training else 0.0)
    return prelu(x, Moments(slope, spread))


@rule(*spelled("clamp clamp_ clip clip_ clamp_min clamp_min_"))
def clamp(x: Any, min: Any = None, max: Any = None) -> Moments:
    """f′ = 1 between the bounds, which may be random themselves."""
    if any(isinstance(bound, Moments) for bound in (min, max)):
        for ahead, bound in ((torch.ge, min), (torch.le, max)):
            x = x if bound is None else extreme_of_two(ahead, x, bound)
        return x
    mean = x.mean.clamp(min, max)
    return Moments(mean, torch.where(mean == x.mean, x.var, 0.0))


rule(*spelled("clamp_max clamp_max_"))(lambda x, max: clamp(x, max=max))
rule(*spelled("hardtanh hardtanh_"))(lambda x, min_val=-1.0, max_val=1.0: clamp(x, min_val, max_val))
rule(*spelled("relu6"))(partial(clamp, min=0.0, max=6.0))


@rule(F.glu)
def glu(x: Moments, dim: int = -1) -> Moments:
    """a sigmoid(b), a and b the halves of x: a product of independent factors."""
    a, b = moved(torch.chunk, x, 2, dim)
    return mul(a, RULES[torch.sigmoid](b))
