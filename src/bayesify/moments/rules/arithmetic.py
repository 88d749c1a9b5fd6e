"""Sums, products and quotients of random and deterministic operands, and reductions."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, parts


@rule(*spelled("add", "add_", "__add__", "__radd__", "__iadd__"), half=True, complex_too=True)
def add(x: Any, y: Any, *, alpha: float = 1) -> Moments:
    """E(x + αy) = E x + α E y;  Var = Var x + α² Var y, x and y taken as independent (residual sums).

    x + αx is (1 + α) x, with (1 + α)² Var x.
    """
    if x is y:
        return times(x, 1 + alpha)
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(times(y, alpha))
    mean = x_mean + y_mean
    if x_var is None or y_var is None:
        var = (y_var if x_var is None else x_var).expand(mean.shape)
        return Moments(mean, var.to(mean.dtype) if mean.is_complex() else var)
    return Moments(mean, x_var + y_var)


def times(x: Any, factor: float) -> Any:
    """αx, with α² Var x."""
    if factor == 1:
        return x
    return Moments(factor * x.mean, factor**2 * x.var) if isinstance(x, Moments) else factor * x


@rule(*spelled("sub", "sub_", "subtract", "__sub__", "__isub__"), half=True, complex_too=True)
def sub(x: Any, y: Any, *, alpha: float = 1) -> Moments:
    """x − α y."""
    return add(x, y, alpha=-alpha)


rule(*spelled("rsub", "__rsub__"), half=True, complex_too=True)(lambda x, y: sub(y, x))


@rule(*spelled("neg", "neg_", "negative", "__neg__"), half=True, complex_too=True)
def negative(x: Moments) -> Moments:
    """The variance stays."""
    return Moments(-x.mean, x.var)


@rule(*spelled("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__"), half=True, complex_too=True)
def mul(x: Any, y: Any) -> Moments:
    """Independent: Var xy = (E x)² Var y + Var x ((E y)² + Var y). x·x is the square, to first order."""
    if has_complex(x, y):
        return complex_product(torch.mul, x, y)
    if x is y:
        return Moments(x.mean.square(), 4 * x.mean.square() * x.var)
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    mean = x_mean * y_mean
    if x_var is None:
        return Moments(mean, _squared(x_mean) * y_var)
    if y_var is None:
        return Moments(mean, x_var * _squared(y_mean))
    return Moments(mean, x_mean.square() * y_var + x_var * (y_mean.square() + y_var))


def has_complex(*operands: Any) -> bool:
    """Is one of the operands complex?"""
    means = (parts(operand)[0] for operand in operands)
    return any(isinstance(m, complex) or (isinstance(m, Tensor) and m.is_complex()) for m in means)


def complex_product(operation: Any, x: Any, y: Any) -> Moments:
    """Σ x·y of complex entries, all real and imaginary parts independent: Re z = Σ Re x Re y − Im x Im y, and so on,
    each product with the variance of independent factors."""
    if x is y:
        raise NotImplementedError(not_covered(operation, "a complex number by itself"))
    (x_mean, x_var), (y_mean, y_var) = ((torch.as_tensor(m), v) for m, v in (parts(x), parts(y)))
    x_square, y_square = _squared_parts(x_mean), _squared_parts(y_mean)
    var: Any = 0.0
    if x_var is not None:
        var = var + _paired(operation, x_var, y_square)
    if y_var is not None:
        var = var + _paired(operation, x_square if x_var is None else x_square + x_var, y_var)
    return Moments(operation(x_mean, y_mean), var)


def _squared_parts(x: Tensor) -> Tensor:
    return torch.complex(x.real.square(), x.imag.square()) if x.is_complex() else x.square()


def _paired(operation: Any, x: Tensor, y: Tensor) -> Tensor:
    """Real with real and imaginary with imaginary parts add to the real one, the others to the imaginary one."""
    if not x.is_complex() or not y.is_complex():
        return operation(*(t.to(x.dtype if x.is_complex() else y.dtype) for t in (x, y)))
    return torch.complex(
        operation(x.real, y.real) + operation(x.imag, y.imag),
        operation(x.real, y.imag) + operation(x.imag, y.real),
    )


@rule(*spelled("div div_ divide true_divide __truediv__ __itruediv__"), half=True, complex_too=True)
def div(x: Any, y: Any, *, rounding_mode: None = None) -> Moments:
    """First order in the divisor: Var x/y = (Var x + (x/y)² Var y)/(E y)²."""
    if rounding_mode is not None:
        raise NotImplementedError(not_covered(torch.div, f"rounding_mode={rounding_mode!r}"))
    if has_complex(y):
        raise NotImplementedError(not_covered(torch.div, "a complex divisor"))
    if x is y:
        return Moments(torch.ones_like(x.mean), torch.zeros_like(x.var))
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    if has_complex(x) and y_var is not None:
        return complex_product(torch.mul, x, div(1.0, y))
    mean = x_mean / y_mean
    if y_var is None:
        return Moments(mean, x_var / _squared(y_mean))
    var = mean.square() * y_var
    return Moments(mean, (var if x_var is None else var + x_var) / y_mean.square())


rule(*spelled("__rtruediv__", "__rdiv__"), half=True)(lambda x, y: div(y, x))


def _added(of: Any, plain: Any, x: Any, y: Any, z: Any, *, value: float = 1) -> Moments:
    """x + α y z, x + α y/z."""
    random = isinstance(y, Moments) or isinstance(z, Moments)
    return add(x, of(y, z) if random else plain(y, z), alpha=value)


rule(*spelled("addcmul", "addcmul_"))(partial(_added, mul, torch.mul))
rule(*spelled("addcdiv", "addcdiv_"))(partial(_added, div, torch.div))


@rule(*spelled("lerp", "lerp_"))
def lerp(x: Any, y: Any, weight: Any) -> Moments:
    """(1 − w) x + w y, independent: Var = ((1 − w)² + Var w) Var x + (w² + Var w) Var y + Var w (E y − E x)²."""
    (x_mean, x_var), (y_mean, y_var), (w, w_var) = parts(x), parts(y), parts(weight)
    mean = torch.lerp(x_mean, y_mean, w)
    var = torch.zeros_like(mean)
    for v, share in ((x_var, 1 - w), (y_var, w)):
        if v is not None:
            var = var + (_squared(share) if w_var is None else share.square() + w_var) * v
    return Moments(mean, var if w_var is None else var + w_var * (y_mean - x_mean).square())


def _squared(value: Any) -> Any:
    return value.square() if isinstance(value, Tensor) else value * value


for _name in ("sum", "cumsum", "trace"):  # variances of independent entries add
    rule(*spelled(_name, f"{_name}_"), complex_too=True)(partial(moved, getattr(torch, _name)))


@rule(*spelled("mean"), complex_too=True)
def average(x: Moments, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Moments:
    """Var of a mean over n entries: Σ Var x / n²."""
    mean = torch.mean(x.mean, dim, keepdim, dtype=dtype)
    n = x.mean.numel() // max(mean.numel(), 1)
    return Moments(mean, torch.mean(x.var, dim, keepdim, dtype=dtype) / n)


@rule(*spelled("prod"))
def prod(x: Moments, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Moments:
    """Independent factors, exactly: Var Π x = Π(m² + v) − Π m², written as a sum of positive terms,

    Σ_k Π_{j<k} m_j² · v_k · Π_{j>k} (m_j² + v_j), so that small variances are not lost in a difference.
    """
    m, v = x if dtype is None else moved(Tensor.to, x, dtype)
    mean = m.prod() if dim is None else m.prod(dim, keepdim)
    if dim is None:
        m, v, dim = m.flatten(), v.flatten(), 0
    square = m.square()
    before = _ahead(square, dim)
    behind = _ahead((square + v).flip(dim), dim).flip(dim)
    return Moments(mean, (before * v * behind).sum(dim, keepdim=keepdim))


def _ahead(x: Tensor, dim: int) -> Tensor:
    """Products of all entries ahead of each."""
    shifted = torch.cat([torch.ones_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, x.shape[dim] - 1)], dim)
    return shifted.cumprod(dim)


@rule(*spelled("cumprod", "cumprod_"))
def cumprod(x: Moments, dim: int, *, dtype: Any = None) -> Moments:
    """`prod` of the first entries, one after the other: Var y_n = Var y_{n−1} (m_n² + v_n) + (E y_{n−1})² v_n."""
    m, v = x if dtype is None else moved(Tensor.to, x, dtype)
    mean = m.cumprod(dim)
    running, variances = torch.zeros_like(v.select(dim, 0)), []
    ahead = _ahead(m.square(), dim)
    for m_n, v_n, ahead_n in zip(m.unbind(dim), v.unbind(dim), ahead.unbind(dim), strict=True):
        running = running * (m_n.square() + v_n) + ahead_n * v_n
        variances.append(running)
    return Moments(mean, torch.stack(variances, dim))
