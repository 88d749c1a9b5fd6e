"""Residual sums with the covariance of both summands: y = x + F(x), Var y = Var x + Var F + 2 diag(∂E F/∂E x) Var x.

For a normal x with independent entries Cov(x_i, F_i(x)) = Var x_i · ∂E F_i/∂E x_i (Stein). The derivative is that of
the moments themselves, taken by autograd: one backward pass through F for each number of an example.
"""

from typing import Any

import torch
from torch import Tensor

from bayesify.execution import compiling
from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.arithmetic import add
from bayesify.moments.values import Moments

MAX_NUMBERS = 4096  # of an example in a residual sum; raise it where there is time for more backward passes


@rule(*spelled("add", "add_", "__add__", "__radd__", "__iadd__"), form="cross", half=True, complex_too=True)
def residual_sum(x: Any, y: Any, *, alpha: float = 1) -> Moments:
    """`add`, and 2α Cov(x, y) where one operand was computed from the other (paper 3, eq. 13 corrected).

    In backward the derivatives count as constants.
    """
    total = add(x, y, alpha=alpha)
    random = isinstance(x, Moments) and isinstance(y, Moments)
    related = random and x is not y and x.mean.shape == y.mean.shape
    return Moments(total.mean, total.var + 2 * alpha * covariance(x, y)) if related else total


@rule(*spelled("sub", "sub_", "subtract", "__sub__", "__isub__"), form="cross", half=True, complex_too=True)
def residual_difference(x: Any, y: Any, *, alpha: float = 1) -> Moments:
    """`residual_sum` with −α."""
    return residual_sum(x, y, alpha=-alpha)


def covariance(x: Moments, y: Moments) -> Any:
    """Cov(x_i, y_i) where y is a function of x or x of y, within ±√(Var x Var y); else 0."""
    if compiling():
        raise NotImplementedError(
            "residual='cross' takes derivatives in the forward pass and cannot be compiled or exported: "
            "use compile=False, or residual='sum'"
        )
    product = x.var * y.var
    most = product.clamp_min(torch.finfo(product.dtype).tiny).sqrt()  # √ has no derivative at 0
    for start, end in ((x, y), (y, x)):
        slope = diagonal(end.mean, start.mean)
        if slope is not None:
            return torch.clamp(slope * start.var, -most, most)
    return 0.0


def diagonal(end: Tensor, start: Tensor) -> Tensor | None:
    """∂end_i/∂start_i for each example, of end's shape; None where end was not computed from start."""
    outputs = end.flatten(1)  # (batch, n)
    if end.grad_fn is None or _gradient(outputs[:, 0], start) is None:
        return None
    if outputs.shape[1] > MAX_NUMBERS:
        raise ValueError(
            f"residual='cross' takes a backward pass for each of the {outputs.shape[1]} numbers of a residual sum, "
            f"the limit is {MAX_NUMBERS}: use residual='sum', or raise bayesify.moments.rules.residual.MAX_NUMBERS"
        )
    columns = [_gradient(column, start).flatten(1)[:, i] for i, column in enumerate(outputs.unbind(1))]  # type: ignore[union-attr]
    return torch.stack(columns, 1).view(end.shape)


def _gradient(output: Tensor, start: Tensor) -> Tensor | None:
    """∂ Σ_b output_b/∂start: examples do not depend on each other (but through batch norm in training)."""
    (gradient,) = torch.autograd.grad(output.sum(), start, retain_graph=True, allow_unused=True)
    return gradient
