"""Elementary functions to first order: E f(x) = f(E x), Var f(x) = f′(E x)² Var x."""

import math
from typing import Any

import torch

from bayesify.moments.carrier import Moments, rule, spelled
from bayesify.moments.missing import not_covered
from bayesify.moments.rules.activation import scaled


@rule(*spelled("abs", "abs_", "absolute", "__abs__"))
def absolute(x: Moments) -> Moments:
    return Moments(x.mean.abs(), x.var)


@rule(*spelled("square", "square_"))
def square(x: Moments) -> Moments:
    return scaled(x.mean.square(), 2 * x.mean, x)


@rule(*spelled("pow", "pow_", "__pow__", "__ipow__"))
def power(x: Any, exponent: Any) -> Moments:
    """x^p with a deterministic p: derivative p x^{p − 1}."""
    if not isinstance(x, Moments) or isinstance(exponent, Moments):
        raise NotImplementedError(not_covered(torch.pow, "a random exponent"))
    return scaled(x.mean.pow(exponent), exponent * x.mean.pow(exponent - 1), x)


@rule(*spelled("sqrt", "sqrt_"))
def sqrt(x: Moments) -> Moments:
    y = x.mean.sqrt()
    return scaled(y, 0.5 / y, x)


@rule(*spelled("rsqrt", "rsqrt_"))
def rsqrt(x: Moments) -> Moments:
    y = x.mean.rsqrt()
    return scaled(y, -0.5 * y / x.mean, x)


@rule(*spelled("reciprocal", "reciprocal_"))
def reciprocal(x: Moments) -> Moments:
    y = x.mean.reciprocal()
    return scaled(y, y.square(), x)


@rule(*spelled("exp", "exp_"))
def exp(x: Moments) -> Moments:
    y = x.mean.exp()
    return scaled(y, y, x)


@rule(*spelled("expm1", "expm1_"))
def expm1(x: Moments) -> Moments:
    return scaled(x.mean.expm1(), x.mean.exp(), x)


@rule(*spelled("log", "log_"))
def log(x: Moments) -> Moments:
    return scaled(x.mean.log(), 1 / x.mean, x)


@rule(*spelled("log1p", "log1p_"))
def log1p(x: Moments) -> Moments:
    return scaled(x.mean.log1p(), 1 / (1 + x.mean), x)


@rule(*spelled("sin", "sin_"))
def sin(x: Moments) -> Moments:
    return scaled(x.mean.sin(), x.mean.cos(), x)


@rule(*spelled("cos", "cos_"))
def cos(x: Moments) -> Moments:
    return scaled(x.mean.cos(), x.mean.sin(), x)


@rule(*spelled("erf", "erf_"))
def erf(x: Moments) -> Moments:
    return scaled(torch.erf(x.mean), 2 / math.sqrt(math.pi) * (-x.mean.square()).exp(), x)


@rule(*spelled("atan", "atan_", "arctan", "arctan_"))
def atan(x: Moments) -> Moments:
    return scaled(x.mean.atan(), 1 / (1 + x.mean.square()), x)


@rule(*spelled("sinh", "sinh_"))
def sinh(x: Moments) -> Moments:
    return scaled(x.mean.sinh(), x.mean.cosh(), x)


@rule(*spelled("cosh", "cosh_"))
def cosh(x: Moments) -> Moments:
    return scaled(x.mean.cosh(), x.mean.sinh(), x)


@rule(*spelled("asinh", "asinh_", "arcsinh", "arcsinh_"))
def asinh(x: Moments) -> Moments:
    return scaled(x.mean.asinh(), (1 + x.mean.square()).rsqrt(), x)
