"""Elementary functions to first order: E f(x) = f(E x), Var f(x) = f′(E x)² Var x."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.activation import first_order, normal_density, register
from bayesify.moments.values import Moments, parts


def logit_slope(m: Tensor, y: Tensor, eps: float | None = None) -> Tensor:
    """Of log x/(1 − x): 1/(x (1 − x)), 0 where x is clamped to [ε, 1 − ε]."""
    clamped = m if eps is None else m.clamp(eps, 1 - eps)
    return torch.where(clamped == m, 1 / (clamped * (1 - clamped)), 0.0)


#: names -> f′ of x and y = f(x), up to its sign
DERIVATIVES: dict[str, Callable[..., Tensor]] = {
    "square": lambda m, y: 2 * m,
    "sqrt": lambda m, y: 0.5 / y,
    "rsqrt": lambda m, y: 0.5 * y / m,
    "reciprocal": lambda m, y: y.square(),
    "exp": lambda m, y: y,
    "exp2": lambda m, y: math.log(2) * y,
    "expm1": lambda m, y: m.exp(),
    "log": lambda m, y: 1 / m,
    "log2": lambda m, y: 1 / (math.log(2) * m),
    "log10": lambda m, y: 1 / (math.log(10) * m),
    "log1p": lambda m, y: 1 / (1 + m),
    "logit": logit_slope,
    "sin": lambda m, y: m.cos(),
    "cos": lambda m, y: m.sin(),
    "asin arcsin": lambda m, y: (1 - m.square()).rsqrt(),
    "acos arccos": lambda m, y: (1 - m.square()).rsqrt(),
    "atan arctan": lambda m, y: 1 / (1 + m.square()),
    "sinh": lambda m, y: m.cosh(),
    "cosh": lambda m, y: m.sinh(),
    "asinh arcsinh": lambda m, y: (1 + m.square()).rsqrt(),
    "atanh arctanh": lambda m, y: 1 / (1 - m.square()),
    "erf": lambda m, y: 2 / math.sqrt(math.pi) * (-m.square()).exp(),
    "erfc": lambda m, y: 2 / math.sqrt(math.pi) * (-m.square()).exp(),
    "ndtr": lambda m, y: normal_density(m),
}
register(first_order, DERIVATIVES)


@rule(*spelled("abs", "abs_", "absolute", "__abs__"), complex_too=True)
def absolute(x: Moments) -> Moments:
    """Of a complex number, by its direction: Var |z| = (Re² Var Re + Im² Var Im)/|z|²."""
    if x.mean.is_complex():
        direction = torch.sgn(x.mean)
        return Moments(x.mean.abs(), direction.real**2 * x.var.real + direction.imag**2 * x.var.imag)
    return Moments(x.mean.abs(), x.var)


@rule(*spelled("pow", "pow_", "__pow__", "__ipow__"))
def power(x: Any, exponent: Any) -> Moments:
    """x^p: derivatives p x^{p − 1} by x and x^p log x by p, of which one may be deterministic."""
    if x is exponent:
        raise NotImplementedError(not_covered(torch.pow, "itself as exponent"))
    (base, x_var), (p, p_var) = parts(x), parts(exponent)
    y = torch.pow(base, p)
    by_base = None if x_var is None else (p * torch.pow(base, p - 1)).square() * x_var
    if p_var is None:
        return Moments(y, by_base)  # type: ignore[arg-type]
    by_power = torch.xlogy(y, base).square() * p_var
    return Moments(y, by_power if by_base is None else by_base + by_power)


rule(torch.Tensor.__rpow__)(lambda exponent, x: power(x, exponent))


@rule(*spelled("atan2", "atan2_", "arctan2", "arctan2_"))
def atan2(y: Any, x: Any) -> Moments:
    """The angle of (x, y): derivatives x/r² by y and −y/r² by x, r² = x² + y²."""
    (y_mean, y_var), (x_mean, x_var) = parts(y), parts(x)
    square = x_mean.square() + y_mean.square()
    by_y: Any = 0.0 if y_var is None else (x_mean / square).square() * y_var
    by_x = 0.0 if x_var is None else (y_mean / square).square() * x_var
    return Moments(torch.atan2(y_mean, x_mean), by_y + by_x)
