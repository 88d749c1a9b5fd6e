"""What of a small change of the mean goes through an activation with exact moments: E f′(x) (Price: ∂E f/∂μ), and, in
the graph of a tape, more than that."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import applied
from bayesify.moments.rules import exact
from bayesify.moments.values import Moments, in_dtype


def relu_gate(x: Moments) -> Tensor:
    """Φ(μ/σ)."""
    m, v = x.mean, in_dtype(x.var, x.mean.dtype)
    return torch.special.ndtr(m * v.clamp_min(exact.VAR_FLOOR).rsqrt())


def gelu_gate(x: Moments, approximate: str = "none") -> Tensor | None:
    """Φ(h) + a q, as in `exact.gelu`."""
    if approximate != "none":
        return None
    m, v = x.mean, in_dtype(x.var, x.mean.dtype)
    root = (1 + v).rsqrt()
    h = m * root
    return torch.special.ndtr(h) + m * root**3 * exact.normal_density(h)


def wave(x: Moments, of: Callable[[Tensor], Tensor]) -> Tensor:
    """e^{−v/2} f′(μ)."""
    return (-0.5 * x.var).exp() * of(x.mean)


#: rule -> E f′, None where the rule is of first order
GATES: dict[Any, Callable[..., Tensor | None]] = {
    exact.relu: relu_gate,
    exact.leaky_relu: lambda x, negative_slope=0.01: negative_slope + (1 - negative_slope) * relu_gate(x),
    exact.absolute: lambda x: None if x.mean.is_complex() else 2 * relu_gate(x) - 1,
    exact.square: lambda x: 2 * x.mean,
    exact.power: lambda x, p: (
        2 * x.mean if isinstance(x, Moments) and isinstance(p, int | float) and p == 2 else None
    ),
    exact.mul: lambda x, y: 2 * x.mean if x is y and not x.mean.is_complex() else None,
    exact.exp: lambda x: (x.mean + 0.5 * x.var).exp(),
    exact.sin: lambda x: wave(x, torch.cos),
    exact.cos: lambda x: -wave(x, torch.sin),
    exact.gelu: gelu_gate,
}


def gated(function: Any, known: Moments | None, x: Moments, *args: Any, **kwargs: Any) -> Any:
    """y, its slope s by x and the noise that is new in every entry; None where the rule is of first order.

    Of the remainder r = Var y − (E f′)² Var x a part c goes on along the slope, s = ±√((E f′)² + c r / Var x).

    known: y, where it is
    """
    if function is exact.relu:
        mean, var, slope, own = applied(exact.GatedRelu, *x)
        return Moments(mean, var), slope, own
    by_mean = GATES[function](x, *args, **kwargs)
    if by_mean is None:
        return None
    y = function(x, *args, **kwargs) if known is None else known
    square = by_mean.square()
    rest = (y.var - square * x.var).clamp_min(0)
    common = exact.SHARED_REST * rest / x.var.clamp_min(exact.VAR_FLOOR)
    steep = (square + common).clamp_min(torch.finfo(square.dtype).tiny).sqrt()
    return y, torch.where(by_mean < 0, -steep, steep), (1 - exact.SHARED_REST) * rest
