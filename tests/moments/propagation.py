"""What the tests of this room share: running a function in the moments pass, draws, and the derived tolerance."""

import math
from collections.abc import Callable
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.passes.moments import call_with_moments
from bayesify.weights import Call

FAILURE_RATE = 1e-6
EXACT = ("exact", "")
ROUNDING = 1e-12  # of sums over the draws, in float64


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def propagate(function: Callable[..., Any], *args: Any, forms: tuple[str, ...] = ("",)) -> Any:
    """`function` of moments (and plain tensors) in the moments pass."""
    net = function if isinstance(function, nn.Module) else Lambda(function)
    return call_with_moments(net, {}, lambda names: {}, Call(args, {}), forms=forms)


def random_moments(*shape: int, var: float = 1.0) -> bf.Moments:
    mean = torch.randn(shape, dtype=torch.float64)
    return bf.Moments(mean, var * (torch.rand(shape, dtype=torch.float64) + 0.1))


def draws_of(moments: bf.Moments, num_draws: int) -> Tensor:
    noise = torch.randn(num_draws, *moments.mean.shape, dtype=torch.float64)
    return moments.mean + moments.var.sqrt() * noise


def assert_moments_of(
    draws: Tensor, moments: bf.Moments, bias: float = 0.0, remainder: bf.Moments | None = None
) -> None:
    """Mean and variance within z standard errors, √(var/n) and √((m₄ − var²)/n) by the draws' own m₄; a stated
    `bias` of the rule is allowed on top, relative to std and variance, or a `remainder` of mean and variance."""
    more: Any = bf.Moments(*(torch.zeros(()),) * 2) if remainder is None else remainder
    num = len(draws)
    z = stats.norm.isf(FAILURE_RATE / 4 / moments.mean.numel())
    var = draws.var(0)
    slack = z * (var / num).sqrt() + bias * var.sqrt() + more.mean + ROUNDING
    assert ((draws.mean(0) - moments.mean).abs() <= slack).all()
    squares = (draws - draws.mean(0)).square()
    slack = z * squares.std(0) / math.sqrt(num) + bias * var + more.var + ROUNDING
    assert ((squares.mean(0) - moments.var).abs() <= slack).all()


def by_jacobian(function: Callable[[Tensor], Tensor], x: bf.Moments) -> bf.Moments:
    """First order by autograd: f(E x) and Σ_j J_ij² Var x_j."""
    mean = function(x.mean)
    jacobian = torch.autograd.functional.jacobian(function, x.mean).reshape(*mean.shape, -1)
    return bf.Moments(mean, (jacobian.square() * x.var.flatten()).sum(-1))
