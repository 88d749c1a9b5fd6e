"""Elementwise non-linearities by the exact moments of a normal input, x ~ N(μ, v)."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesify.execution import Function, applied
from bayesify.moments.recompute import OfInputs
from bayesify.moments.registry import RULES, rule, spelled
from bayesify.moments.rules import arithmetic, elementwise
from bayesify.moments.rules.activation import normal_density
from bayesify.moments.rules.owen import owens_t
from bayesify.moments.values import Moments, in_dtype

VAR_FLOOR = 1e-12  # below it an input counts as certain: derivatives by v grow like 1/√v at a kink
SMALL_ON = ("cuda",)  # devices where relu keeps its derivatives in 16 bits
SHARED_REST = (
    0.5  # of an activation's remainder: chosen on trained residual networks, which have too much with all
)
STEEP_FLOOR = 1e-6  # of a slope that is divided by: where it is smaller, rounding is all there is
FAR = 9.0  # this many standard deviations from a kink nothing of it is left, but denormal numbers would cost time


@rule(*spelled("relu", "relu_"), form="exact", half=True)
def relu(x: Moments) -> Moments:
    """E y = μΦ(α) + σφ(α);  Var y = v[Φ + α²Φ(α)Φ(−α) + αφ(1 − 2Φ) − φ²], α = μ/σ."""
    return Moments(*applied(_Relu, x.mean, x.var)[:2])


@rule(*spelled("leaky_relu", "leaky_relu_"), form="exact")
def leaky_relu(x: Moments, negative_slope: float = 0.01) -> Moments:
    """y = a x + (1 − a) relu x and Cov(x, relu x) = vΦ (Stein): Var y = a²v + (1 − a)² Var relu + 2a(1 − a)vΦ."""
    a, rest = negative_slope, 1 - negative_slope
    mean, var = relu(x)
    wide_mean, wide_var = _wide(*x)
    alpha = wide_mean * wide_var.clamp_min(VAR_FLOOR).rsqrt()
    share = torch.special.ndtr(alpha).to(x.var.dtype)
    y_var = rest**2 * var + (a**2 + 2 * a * rest * share) * x.var
    return Moments(a * x.mean + rest * mean, y_var.clamp_min(0))


@rule(*spelled("abs", "abs_", "absolute", "__abs__"), form="exact", complex_too=True)
def absolute(x: Moments) -> Moments:
    """|x| = −x + 2 relu x."""
    if x.mean.is_complex():
        return elementwise.absolute(x)
    return leaky_relu(x, -1.0)


@rule(*spelled("square", "square_"), form="exact")
def square(x: Moments) -> Moments:
    """E x² = μ² + v;  Var x² = 2v² + 4μ²v."""
    squared = x.mean.square()
    return Moments(squared + x.var, 2 * x.var * (x.var + 2 * squared))


@rule(*spelled("pow", "pow_", "__pow__", "__ipow__"), form="exact")
def power(x: Any, exponent: Any) -> Moments:
    """x² has exact moments; other powers are first order."""
    is_square = isinstance(x, Moments) and isinstance(exponent, int | float) and exponent == 2
    return square(x) if is_square else elementwise.power(x, exponent)


@rule(*spelled("mul mul_ multiply __mul__ __rmul__ __imul__"), form="exact", half=True, complex_too=True)
def mul(x: Any, y: Any) -> Moments:
    """x · x has exact moments as x²."""
    return square(x) if x is y and not x.mean.is_complex() else arithmetic.mul(x, y)


@rule(*spelled("exp", "exp_"), form="exact")
def exp(x: Moments) -> Moments:
    """Log-normal: E y = e^{μ + v/2};  Var y = (e^v − 1)(E y)²."""
    mean = (x.mean + 0.5 * x.var).exp()
    return Moments(mean, x.var.expm1() * mean.square())


@rule(*spelled("sin", "sin_"), form="exact")
def sin(x: Moments) -> Moments:
    """E y = e^{−v/2} sin μ;  Var y = ½(1 − e^{−v})(1 + e^{−v} cos 2μ)."""
    return Moments((-0.5 * x.var).exp() * x.mean.sin(), _wave_var(x, 1))


@rule(*spelled("cos", "cos_"), form="exact")
def cos(x: Moments) -> Moments:
    """E y = e^{−v/2} cos μ;  Var y = ½(1 − e^{−v})(1 − e^{−v} cos 2μ)."""
    return Moments((-0.5 * x.var).exp() * x.mean.cos(), _wave_var(x, -1))


def _wave_var(x: Moments, sign: int) -> Tensor:
    return 0.5 * -torch.expm1(-x.var) * (1 + sign * (-x.var).exp() * (2 * x.mean).cos())


@rule(torch.nn.functional.gelu, form="exact", half=True)
def gelu(x: Moments, approximate: str = "none") -> Moments:
    """E y = μΦ(h) + v q,  h = μ/√(1 + v), q = φ(h)/√(1 + v);
    E y² = μ(μE₂ + 2vqΦ(t)) + v(E₂ + 2q[aΦ(t) + bφ(t)/√(1 + b)]), E₂ = Φ(h) − 2T(h, 1/√(1 + 2v)) with Owen's T,
    a = μ/(1 + v), b = v/(1 + v), t = a/√(1 + b).

    The tanh form differs from this one by less than 5e-4 and has no closed form: it takes first order.
    """
    if approximate != "none":
        return RULES[torch.nn.functional.gelu](x, approximate=approximate)
    return Moments(*applied(_Gelu, x.mean, x.var))


def _gelu_moments(m: Tensor, v: Tensor, slopes: bool) -> tuple[Tensor, ...]:
    """(E y, Var y), and with `slopes` their derivatives ∂E/∂μ = E f′, ∂E/∂v = ½E f″, ∂Var/∂μ, ∂Var/∂v (Price).

    Under the density ∝ φ(x)N(x; μ, v), of mean a, variance b and mass q, the moments that appear are p_k = E x^kΦ(x),
    p₀ = Φ(t), and E φ = ψ; they follow from each other by partial integration.
    """
    root = (1 + v).rsqrt()
    h, square = m * root, root.square()
    a, b, q = m * square, v * square, normal_density(h) * root
    inner = (1 + b).rsqrt()
    t, cdf = a * inner, torch.special.ndtr(h)
    p0, psi = torch.special.ndtr(t), normal_density(t) * inner
    p1 = a * p0 + b * psi
    both = cdf - 2 * owens_t(h, (1 + 2 * v).rsqrt())
    mean = m * cdf + v * q
    second = m * (m * both + 2 * v * q * p0) + v * (both + 2 * q * p1)
    # the difference of two large numbers loses the small variances: there, the Taylor series
    small = v < (1e-5 if v.dtype == torch.float64 else 1e-2)
    series, *series_slopes = _gelu_series(m, v)
    var = torch.where(small, series, second - mean.square()).clamp_min(0)
    if not slopes:
        return mean, var
    by_mean, by_var = cdf + a * q, 0.5 * q * (2 - b - a.square())
    a1 = a * inner.square()
    p2 = a * p1 + b * (p0 + a1 * psi)
    squares = psi * (a1.square() + b * inner.square())  # E x²φ
    p3 = a * p2 + b * (2 * p1 + squares)
    var_by_mean = 2 * (m * both + q * (2 * v * p0 + p2) - mean * by_mean)
    var_by_var = both + q * (4 * p1 + squares - p3) - 2 * mean * by_var
    chosen = (torch.where(small, s, f) for s, f in zip(series_slopes, (var_by_mean, var_by_var), strict=True))
    return mean, var, by_mean, by_var, *chosen


def _gelu_series(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Var f(x) = f′²v + (½f″² + f′f‴)v² + O(v³) and its derivatives, with f″ = φ(2 − x²), f‴ = φx(x² − 4)."""
    phi, square = normal_density(m), m.square()
    first = torch.special.ndtr(m) + m * phi
    second, third, fourth = phi * (2 - square), phi * m * (square - 4), phi * (square * (7 - square) - 4)
    curved = v * (0.5 * second.square() + first * third)
    by_mean = v * (2 * first * second + v * (2 * second * third + first * fourth))
    return v * (first.square() + curved), by_mean, first.square() + 2 * curved


class _Gelu(OfInputs):
    """`_gelu_moments` with gradients."""

    @staticmethod
    def forward(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        y_mean, y_var = _gelu_moments(*_wide(mean, var), slopes=False)
        return in_dtype(y_mean, mean.dtype), in_dtype(y_var, var.dtype)

    @staticmethod
    def backward(ctx: Any, by_mean: Tensor, by_var: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = ctx.saved_tensors
        _, _, *slopes = _gelu_moments(*_wide(mean, var), slopes=True)
        grad_mean, grad_var = (
            torch.addcmul(var_slope * by_var, mean_slope, by_mean)
            for mean_slope, var_slope in zip(slopes[:2], slopes[2:], strict=True)
        )
        return grad_mean.to(mean.dtype), grad_var.to(var.dtype)


def _wide(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(mean.dtype, torch.float32)
    return mean.to(wide), var.to(wide)


def _relu_moments(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(E relu x, Var relu x, Φ, φ/σ), with u = φ + αΦ:  E = σu,  Var = v(Φ + u(α − u)).

    The last operation of each is not in place: torch 2.11 would lose the compiled gradient, without a word.
    """
    v, std, alpha, share, phi, u = _standardized(mean, var)
    y_var = alpha.sub_(u).mul_(u).add_(share).clamp_min_(0) * v
    return u * std, y_var, share, phi / std


def _standardized(mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
    """v, σ, α = μ/σ, Φ(α), φ(α) and E relu(x)/σ = φ + αΦ."""
    m, v = _wide(mean, var)
    std = v.clamp_min(VAR_FLOOR).sqrt_()
    alpha = (m / std).clamp_min_(-FAR)
    share = 0.5 * (alpha * -math.sqrt(0.5)).erfc_()
    phi = alpha.square().clamp_max_(FAR**2).mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return v, std, alpha, share, phi, torch.addcmul(phi, alpha, share)


def _relu_slopes(y_mean: Tensor, share: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """∂E/∂v = φ/(2σ), ∂Var/∂μ = 2E(1 − Φ), ∂Var/∂v = Φ − Eφ/σ: expectations by Price's theorem, as ∂E/∂μ = Φ is."""
    return 0.5 * slope, (1 - share).mul_(y_mean).mul_(2), torch.addcmul(share, y_mean, slope, value=-1)


class _Relu(Function):
    """`_relu_moments` with gradients. Backward needs E, which the next layer keeps anyway, and two more tensors; on a
    GPU they are kept in 16 bits, a relative error of 0.05 % and 0.4 % in gradients.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y_mean, y_var, share, slope = _relu_moments(mean, var)
        if mean.device.type in SMALL_ON and share.dtype == torch.float32:
            share, slope = share.half(), slope.bfloat16()
        return in_dtype(y_mean, mean.dtype), in_dtype(y_var, var.dtype), share, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        y_mean, _, share, slope = output
        ctx.mark_non_differentiable(share, slope)
        ctx.save_for_backward(y_mean, share, slope)
        ctx.dtypes = [t.dtype for t in inputs]

    @staticmethod
    @once_differentiable  # what it saves has no derivative of its own: second ones raise, first_order has them
    def backward(ctx: Any, by_mean: Tensor, by_var: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        y_mean, share, slope = ctx.saved_tensors
        wide = torch.promote_types(y_mean.dtype, torch.float32)
        share, slope = share.to(wide), slope.to(wide)
        mean_by_var, var_by_mean, var_by_var = _relu_slopes(y_mean, share, slope)
        grad_mean = torch.addcmul(var_by_mean * by_var, by_mean, share)
        grad_var = torch.addcmul(var_by_var * by_var, by_mean, mean_by_var)
        return grad_mean.to(ctx.dtypes[0]), grad_var.to(ctx.dtypes[1])


class GatedRelu(OfInputs):
    """E, Var, slope s and own noise n of relu x, as `gates.gated` has them: with g = Φ + u(α − u) = Var/v and
    ρ = g − Φ², s = √(Φ² + cρ) and n = (1 − c)vρ, where c is the shared part of the remainder vρ.

    By α g′ = 2u(1 − Φ) and ρ′ = g′ − 2Φφ;  by v, at a fixed μ, ∂Var = Φ − uφ and ∂(vρ) = Φ(1 − Φ) − φ².
    """

    @staticmethod
    def forward(mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        v, std, alpha, share, _, u = _standardized(mean, var)
        g = torch.addcmul(share, u, alpha - u).clamp_min_(0)
        square = share.square()
        rho = (g - square).clamp_min_(0)
        slope = square.add_(rho, alpha=SHARED_REST).sqrt()
        y_mean, y_var, own = u * std, g * v, (1 - SHARED_REST) * v * rho
        return in_dtype(y_mean, mean.dtype), in_dtype(y_var, var.dtype), in_dtype(slope, mean.dtype), own

    @staticmethod
    def backward(ctx: Any, by_mean: Tensor, by_var: Tensor, by_slope: Tensor, by_own: Tensor) -> Any:
        mean, var = ctx.saved_tensors
        _, std, alpha, share, phi, u = _standardized(mean, var)
        below, both = 1 - share, share * phi
        by_var, by_own = by_var.to(std.dtype), (1 - SHARED_REST) * by_own
        wide = u * below
        slope = (share.square() + SHARED_REST * (share * below - u * (u - alpha)).clamp_min(0)).sqrt()
        by_slope = (
            by_slope * ((1 - SHARED_REST) * both + SHARED_REST * wide) / (slope.clamp_min(STEEP_FLOOR) * std)
        )
        grad_mean = by_mean * share + 2 * std * (by_var * wide + by_own * (wide - both)) + by_slope
        grad_var = (
            0.5 * (by_mean * phi - by_slope * alpha) / std
            + by_var * (share - u * phi)
            + by_own * (share * below - phi.square())
        )
        return grad_mean.to(mean.dtype), grad_var.to(var.dtype)
