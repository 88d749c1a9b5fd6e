"""Special functions: for plain numbers in plain arithmetic (they trace under torch.compile), and log(eˣ E₁(x)) for
tensors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import Function

EULER = 0.57721566490153286  # Euler's γ
SHIFT = 10  # asymptotic series are taken at x + SHIFT
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)  # B_{2j} / (2j (2j − 1))
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)  # B_{2j} / (2j)
TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)  # B_{2j}


def digamma(x: float) -> float:
    """ψ(x) for x > 0: ψ(x) = ψ(x + n) − Σ 1/(x + i), then log y − 1/(2y) − Σ B_{2j}/(2j y^{2j})."""
    y = x + SHIFT
    series = math.log(y) - 0.5 / y - _horner(DIGAMMA, 1 / y**2) / y**2
    return series - sum(1 / (x + i) for i in range(SHIFT))


def trigamma(x: float) -> float:
    """ψ₁(x) = ψ′(x) for x > 0: Σ 1/(x + i)² + 1/y + 1/(2y²) + Σ B_{2j}/y^{2j + 1}, y = x + n."""
    y = x + SHIFT
    series = 1 / y + 0.5 / y**2 + _horner(TRIGAMMA, 1 / y**2) / y**3
    return series + sum(1 / (x + i) ** 2 for i in range(SHIFT))


def inverse_trigamma(value: float) -> float:
    """The x > 0 with ψ₁(x) = value, by bisection: 1/x < ψ₁(x) < 1/x + 1/x²."""
    low, high = 1 / value, 1 / value + 1 / math.sqrt(value) + 1
    return bisect(trigamma, value, low, high)


def gamma_ratio(x: float, p: float) -> float:
    """Γ(x + p)/Γ(x) for x > 0, without cancellation for large x; inf where x + p ≤ 0."""
    if x + p <= 0:
        return math.inf
    if p == int(p) and abs(p) <= 8:
        rising = 1.0
        for i in range(int(abs(p))):
            rising *= min(x, x + p) + i
        return rising if p > 0 else 1 / rising
    if min(x, x + p) < SHIFT:
        return math.exp(math.lgamma(x + p) - math.lgamma(x))
    tail = _stirling_tail(x + p) - _stirling_tail(x)
    return math.exp((x - 0.5) * math.log1p(p / x) + p * math.log(x + p) - p + tail)


def stirling(x: float) -> float:
    """log Γ(x) − (x − ½) log x + x for x > 0, without cancellation for large x (→ ½ log 2π)."""
    if x < SHIFT:
        return math.lgamma(x) - (x - 0.5) * math.log(x) + x
    return 0.5 * math.log(2 * math.pi) + _stirling_tail(x)


def _stirling_tail(x: float) -> float:
    return _horner(STIRLING, 1 / x**2) / x


def log_sphere_area(d: int) -> float:
    """log(2π^{d/2}/Γ(d/2)), of the unit sphere in d dimensions."""
    return math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d)


def alternating_zeta(s: float) -> float:
    """η(s) = Σ_{n ≥ 1} (−1)^{n−1} n^{−s} for s > −1, by Borwein's acceleration."""
    n = 24
    weights, total = [], 0.0
    for i in range(n + 1):
        total += math.factorial(n + i - 1) * 4**i / (math.factorial(n - i) * math.factorial(2 * i))
        weights.append(n * total)
    last = weights[-1]
    return sum((-1) ** k * (last - weights[k]) / (k + 1) ** s for k in range(n)) / last


def bessel_k(order: float, x: float) -> float:
    """K_ν(x) = ∫₀^∞ exp(−x cosh t) cosh(νt) dt for x near one, by the trapezoidal rule."""
    step = 1 / 16
    nodes = [step * i for i in range(1, 160)]
    inner = sum(math.exp(-x * math.cosh(t)) * math.cosh(order * t) for t in nodes)
    return step * (0.5 * math.exp(-x) + inner)


def bisect(function: Callable[[float], float], value: float, low: float, high: float) -> float:
    """The root of function(x) = value of a decreasing function, between low and high."""
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) > value else (low, middle)
    return math.sqrt(low * high)


def _horner(coefficients: Sequence[float], x: Any) -> Any:
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


# -- log(eˣ E₁(x)) -----------------------------------------------------------------------------------------
# For x ≥ 1, with u = 1/x: x eˣ E₁(x) = 1 − u NUMERATOR(u)/DENOMINATOR(u), to a relative 5e-17 (interpolated in 50
# digits at 23 points of (0, 1]); all coefficients are positive, so nothing cancels.
NUMERATOR = (
    1.0, 53.592229233772367, 1136.4706750212587, 12386.594968941658,
    75581.207685906031, 264451.05285201398, 524498.69445425218, 565311.8289554584,
    305331.90302083489, 71023.467910056638, 5030.0928165514719, 2.5736062506747575,
)  # fmt: skip
DENOMINATOR = (
    1.0, 55.592229233772367, 1241.6551334888035, 14560.351860516538,
    98466.194107662295, 397869.98559013048, 964877.73583381446, 1377920.5939490809,
    1108958.1249253691, 464382.52107907402, 87201.699734146014, 5204.1836707794286,
)  # fmt: skip
#: E₁(x) + log x + γ = x Σ_j SMALL[j] xʲ, used for x < 1
SMALL = tuple((-1) ** j / ((j + 1) * math.factorial(j + 1)) for j in range(18))


def log_scaled_e1(x: Tensor) -> Tensor:
    """log(eˣ E₁(x)), elementwise, E₁(x) = ∫ₓ^∞ e^{−t}/t dt.

    Numbers below the smallest normal one count as that number, so that the value at 0 is finite.
    Its derivative is 1 − 1/(x eˣ E₁(x)).
    """
    result: Tensor = _LogScaledE1.apply(x.clamp(min=torch.finfo(x.dtype).tiny, max=1e37))
    return result


class _LogScaledE1(Function):
    """Saves x alone; plain autograd would save some forty tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        small = x.clamp(max=1.0)
        near = small + torch.log(small * _horner(SMALL, small) - small.log() - EULER)
        return torch.where(x < 1, near, torch.log1p(-_deficit(x)) - x.log())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        small = x.clamp(max=1.0)
        scaled = small.exp() * (small * _horner(SMALL, small) - small.log() - EULER)
        deficit = _deficit(x)
        return grad * torch.where(x < 1, 1 - 1 / (small * scaled), -deficit / (1 - deficit))


def _deficit(x: Tensor) -> Tensor:
    """1 − x eˣ E₁(x) for x ≥ 1."""
    u = 1 / x.clamp(min=1.0)
    return u * _horner(NUMERATOR, u) / _horner(DENOMINATOR, u)


def betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """I_x(a, b) = x^a (1 − x)^b / (a B(a, b)) · 1/(1 + d₁/(1 + d₂/(1 + …))) for a, b > 0 and x in [0, 1], in float64.

    Lentz's algorithm on the side where the fraction converges in O(√max(a, b)) steps: I_x(a, b) = 1 − I_{1−x}(b, a).
    """
    swap = x > (a + 1) / (a + b + 2)
    a, b, x = torch.where(swap, b, a), torch.where(swap, a, b), torch.where(swap, 1 - x, x)
    tiny = torch.finfo(x.dtype).tiny
    c = torch.ones_like(x)
    d = 1 / _away_from_0(1 - (a + b) * x / (a + 1), tiny)
    fraction, largest = d, float(torch.maximum(a, b).max()) if x.numel() else 0.0
    for m in range(1, 50 + 10 * math.isqrt(math.ceil(min(largest, 1e10)))):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for step in (even, odd):
            d = 1 / _away_from_0(1 + step * d, tiny)
            c = _away_from_0(1 + step / c, tiny)
            fraction = fraction * c * d
        if m % 8 == 0 and bool(((fraction - before).abs() <= 1e-15 * fraction.abs()).all()):
            break
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    front = (torch.special.xlogy(a, x) + torch.special.xlog1py(b, -x) - log_beta).exp() / a
    found = (front * fraction).clamp(0, 1)
    return torch.where(swap, 1 - found, found)


def _away_from_0(value: Tensor, least: float) -> Tensor:
    return torch.where(value.abs() < least, least, value)
