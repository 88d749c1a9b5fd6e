"""Elementary functions to first order: E f(x) = f(E x), Var f(x) = f′(E x)² Var x."""

import math
from typing import Any

import torch

from bayesify.moments.carrier import rule, spelled
from bayesify.moments.missing import not_covered
from bayesify.moments.rules.activation import scaled
from bayesify.moments.values import Moments, parts


@rule(*spelled("abs", "abs_", "absolute", "__abs__"), complex_too=True)
def absolute(x: Moments) -> Moments:
    """Of a complex number, by its direction: Var |z| = (Re² Var Re + Im² Var Im)/|z|²."""
    if x.mean.is_complex():
        direction = torch.sgn(x.mean)
        return Moments(x.mean.abs(), direction.real**2 * x.var.real + direction.imag**2 * x.var.imag)
    return Moments(x.mean.abs(), x.var)


@rule(*spelled("square", "square_"))
def square(x: Moments) -> Moments:
    """f′ = 2x."""
    return scaled(x.mean.square(), 2 * x.mean, x)


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


@rule(torch.Tensor.__rpow__)
def power_of(exponent: Moments, x: Any) -> Moments:
    """`power` with the operands swapped."""
    return power(x, exponent)


@rule(*spelled("sqrt", "sqrt_"))
def sqrt(x: Moments) -> Moments:
    """f′ = 1/(2√x)."""
    y = x.mean.sqrt()
    return scaled(y, 0.5 / y, x)


@rule(*spelled("rsqrt", "rsqrt_"))
def rsqrt(x: Moments) -> Moments:
    """f′ = −x^{−3/2}/2."""
    y = x.mean.rsqrt()
    return scaled(y, -0.5 * y / x.mean, x)


@rule(*spelled("reciprocal", "reciprocal_"))
def reciprocal(x: Moments) -> Moments:
    """f′ = −1/x²."""
    y = x.mean.reciprocal()
    return scaled(y, y.square(), x)


@rule(*spelled("exp", "exp_"))
def exp(x: Moments) -> Moments:
    """f′ = eˣ."""
    y = x.mean.exp()
    return scaled(y, y, x)


@rule(*spelled("exp2", "exp2_"))
def exp2(x: Moments) -> Moments:
    """f′ = 2ˣ log 2."""
    y = x.mean.exp2()
    return scaled(y, math.log(2) * y, x)


@rule(*spelled("expm1", "expm1_"))
def expm1(x: Moments) -> Moments:
    """f′ = eˣ."""
    return scaled(x.mean.expm1(), x.mean.exp(), x)


@rule(*spelled("log", "log_"))
def log(x: Moments) -> Moments:
    """f′ = 1/x."""
    return scaled(x.mean.log(), 1 / x.mean, x)


@rule(*spelled("log2", "log2_"))
def log2(x: Moments) -> Moments:
    """f′ = 1/(x log 2)."""
    return scaled(x.mean.log2(), 1 / (math.log(2) * x.mean), x)


@rule(*spelled("log10", "log10_"))
def log10(x: Moments) -> Moments:
    """f′ = 1/(x log 10)."""
    return scaled(x.mean.log10(), 1 / (math.log(10) * x.mean), x)


@rule(*spelled("logit", "logit_"))
def logit(x: Moments, eps: float | None = None) -> Moments:
    """log x/(1 − x): derivative 1/(x (1 − x)), 0 where x is clamped to [ε, 1 − ε]."""
    clamped = x.mean if eps is None else x.mean.clamp(eps, 1 - eps)
    slope = torch.where(clamped == x.mean, 1 / (clamped * (1 - clamped)), 0.0)
    return scaled(torch.logit(x.mean, eps), slope, x)


@rule(*spelled("log1p", "log1p_"))
def log1p(x: Moments) -> Moments:
    """f′ = 1/(1 + x)."""
    return scaled(x.mean.log1p(), 1 / (1 + x.mean), x)


@rule(*spelled("sin", "sin_"))
def sin(x: Moments) -> Moments:
    """f′ = cos x."""
    return scaled(x.mean.sin(), x.mean.cos(), x)


@rule(*spelled("cos", "cos_"))
def cos(x: Moments) -> Moments:
    """f′ = −sin x."""
    return scaled(x.mean.cos(), x.mean.sin(), x)


@rule(*spelled("erf", "erf_"))
def erf(x: Moments) -> Moments:
    """f′ = 2/√π e^{−x²}."""
    return scaled(torch.erf(x.mean), 2 / math.sqrt(math.pi) * (-x.mean.square()).exp(), x)


@rule(*spelled("erfc", "erfc_"))
def erfc(x: Moments) -> Moments:
    """f′ = −2/√π e^{−x²}."""
    return Moments(torch.erfc(x.mean), erf(x).var)


@rule(torch.special.ndtr)
def ndtr(x: Moments) -> Moments:
    """Φ(x): derivative φ(x)."""
    return scaled(torch.special.ndtr(x.mean), (-0.5 * x.mean.square()).exp() / math.sqrt(2 * math.pi), x)


@rule(*spelled("asin", "asin_", "arcsin", "arcsin_"))
def asin(x: Moments) -> Moments:
    """f′ = 1/√(1 − x²)."""
    return scaled(x.mean.asin(), (1 - x.mean.square()).rsqrt(), x)


@rule(*spelled("acos", "acos_", "arccos", "arccos_"))
def acos(x: Moments) -> Moments:
    """f′ = −1/√(1 − x²)."""
    return Moments(x.mean.acos(), asin(x).var)


@rule(*spelled("atanh", "atanh_", "arctanh", "arctanh_"))
def atanh(x: Moments) -> Moments:
    """f′ = 1/(1 − x²)."""
    return scaled(x.mean.atanh(), 1 / (1 - x.mean.square()), x)


@rule(*spelled("atan2", "atan2_", "arctan2", "arctan2_"))
def atan2(y: Any, x: Any) -> Moments:
    """The angle of (x, y): derivatives x/r² by y and −y/r² by x, r² = x² + y²."""
    (y_mean, y_var), (x_mean, x_var) = parts(y), parts(x)
    square = x_mean.square() + y_mean.square()
    by_y: Any = 0.0 if y_var is None else (x_mean / square).square() * y_var
    by_x = 0.0 if x_var is None else (y_mean / square).square() * x_var
    return Moments(torch.atan2(y_mean, x_mean), by_y + by_x)


@rule(*spelled("atan", "atan_", "arctan", "arctan_"))
def atan(x: Moments) -> Moments:
    """f′ = 1/(1 + x²)."""
    return scaled(x.mean.atan(), 1 / (1 + x.mean.square()), x)


@rule(*spelled("sinh", "sinh_"))
def sinh(x: Moments) -> Moments:
    """f′ = cosh x."""
    return scaled(x.mean.sinh(), x.mean.cosh(), x)


@rule(*spelled("cosh", "cosh_"))
def cosh(x: Moments) -> Moments:
    """f′ = sinh x."""
    return scaled(x.mean.cosh(), x.mean.sinh(), x)


@rule(*spelled("asinh", "asinh_", "arcsinh", "arcsinh_"))
def asinh(x: Moments) -> Moments:
    """f′ = 1/√(1 + x²)."""
    return scaled(x.mean.asinh(), (1 + x.mean.square()).rsqrt(), x)
