"""Weideman's rational form of the Faddeeva function W(z) = exp(−z²) erfc(−iz) and of its integral, for Im z ≥ 0.

With Z = (L + iz)/(L − iz), which maps the upper half-plane to the unit disc:

    W(z) = 1/(√π (L − iz)) + 2 (L − iz)⁻² Σ_{n=1}^{N} a_n Zⁿ⁻¹            (Weideman 1994, eq. 38)
    E log |t − z|² = log |L − iz|² − (2√π/L) Re Σ_n (a_n/n)(Zⁿ − (−1)ⁿ),     t ~ density exp(−t²)/√π

the second by integrating the first, since ∂/∂z E log(z − t) = −i √π W(z). Far from 0 the second less log y² is
left with the digits of its small terms by their series, c_k = E t²ᵏ/(2k):

    E log(1 + (t − x)²/y²) = log(1 + x²/y²) − 2 Re Σ_k c_k z⁻²ᵏ,     |z| ≥ 8, or 4.5 in float32; 16 terms

Complex numbers are pairs of real tensors,
which compilers take. Errors (tests): 1e-12 in float64 (N = 32), 1e-6 in float32 (N = 20).
"""

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.recompute import OfInputs

Complex = tuple[Tensor, Tensor]


def coefficients(n: int) -> tuple[float, tuple[float, ...]]:
    """L = √(n/√2) and a_1 … a_n: Fourier coefficients of (L² + t²) exp(−t²), t = L tan(θ/2), by the midpoint rule."""
    length = math.sqrt(n / math.sqrt(2))
    m = 2 * n
    angles = [k * math.pi / m for k in range(-m + 1, m)]
    nodes = [length * math.tan(angle / 2) for angle in angles]
    values = [math.exp(-t * t) * (length**2 + t * t) for t in nodes]
    return length, tuple(
        sum(f * math.cos(j * angle) for f, angle in zip(values, angles, strict=True)) / (2 * m)
        for j in range(1, n + 1)
    )


LONG, SHORT = coefficients(32), coefficients(20)
SERIES = tuple(math.prod(range(1, 2 * k, 2)) / (2**k * 2 * k) for k in range(1, 17))  # c_1, c_2, …


def far(dtype: torch.dtype) -> float:
    """|z| from which the series has the digits of the type: 1e-15 there, 1e-10 in float32."""
    return 8.0 if dtype == torch.float64 else 4.5


def log_distance(x: Tensor, y: Tensor) -> Tensor:
    """E log |t − z|², z = x + iy with y ≥ 0, t ~ N(0, ½), elementwise.

    Its gradient is 2√π (Im W(z), Re W(z)).
    """
    return _LogDistance.apply(*torch.broadcast_tensors(x, y))


def log_one_plus(x: Tensor, y: Tensor) -> Tensor:
    """E log(1 + (t − x)²/y²), y > 0, t ~ N(0, ½), elementwise."""
    return _LogOnePlus.apply(*torch.broadcast_tensors(x, y))


def faddeeva(x: Tensor, y: Tensor) -> Complex:
    """W(x + iy) as (Re W, Im W), y ≥ 0."""
    length, a = LONG if x.dtype == torch.float64 else SHORT
    inverse, z = _mapped(x, y, length)  # 1/(L − iz) and Z
    total: Complex = (torch.full_like(x, a[-1]), torch.zeros_like(x))
    for c in reversed(a[:-1]):
        total = _times(total, z)
        total = (total[0] + c, total[1])
    tail = _times(_times(inverse, inverse), total)
    root = 1 / math.sqrt(math.pi)
    return root * inverse[0] + 2 * tail[0], root * inverse[1] + 2 * tail[1]


class _LogDistance(OfInputs):
    """Plain autograd would keep every step of the sum."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        length, a = LONG if x.dtype == torch.float64 else SHORT
        _, z = _mapped(x, y, length)
        total: Complex = (torch.zeros_like(x), torch.zeros_like(x))
        at_infinity = 0.0  # the same sum at Z = −1
        for n in range(len(a), 0, -1):
            total = _times((total[0] + a[n - 1] / n, total[1]), z)
            at_infinity = -(at_infinity + a[n - 1] / n)
        log_square = 2 * torch.hypot(length + y, x).log()
        return log_square - (2 * math.sqrt(math.pi) / length) * (total[0] - at_infinity)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Complex:
        real, imaginary = faddeeva(*ctx.saved_tensors)
        scaled = 2 * math.sqrt(math.pi) * grad
        return scaled * imaginary, scaled * real


class _LogOnePlus(OfInputs):
    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        near = log_distance(x, y) - 2 * y.log()
        size = torch.hypot(x, y)
        leading = torch.where(x.abs() < y, (x / y).square().log1p(), 2 * (size.log() - y.log()))
        return torch.where(size < far(x.dtype), near, leading - 2 * _series(x, y, SERIES)[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Complex:
        """Near 0: 2√π (Im W, Re W) − (0, 2/y); far from it the same without what cancels in it."""
        x, y = ctx.saved_tensors
        size = torch.hypot(x, y)
        real, imaginary = faddeeva(x, y)
        near = (2 * math.sqrt(math.pi) * imaginary, 2 * math.sqrt(math.pi) * real - 2 / y)
        slopes = tuple(2 * k * c for k, c in enumerate(SERIES, 1))
        total = _times(_series(x, y, slopes), _inverse(x, y))  # d/dz of −Σ c_k z⁻²ᵏ, which is analytic
        along = x / size
        away = (2 * along / size + 2 * total[0], -2 * along.square() / y - 2 * total[1])
        return tuple(grad * torch.where(size < far(x.dtype), a, b) for a, b in zip(near, away, strict=True))  # type: ignore[return-value]


def _series(x: Tensor, y: Tensor, c: tuple[float, ...]) -> Complex:
    """Σ_k c_k z⁻²ᵏ; any finite number near 0."""
    inverse = _inverse(x, y)
    square = _times(inverse, inverse)
    total: Complex = (torch.zeros_like(x), torch.zeros_like(x))
    for each in reversed(c):
        total = _times((total[0] + each, total[1]), square)
    return total


def _inverse(x: Tensor, y: Tensor) -> Complex:
    """1/z, and something finite near 0."""
    size = torch.hypot(x, y).clamp_min(far(x.dtype) / 2)
    return x / size / size, -y / size / size


def _mapped(x: Tensor, y: Tensor, length: float) -> tuple[Complex, Complex]:
    """1/(L − iz) and Z."""
    size = torch.hypot(length + y, x)
    real, imaginary = (length + y) / size, x / size  # of the unit vector along L + y + ix
    inverse = (real / size, imaginary / size)
    z = _times(((length - y) / size, x / size), (real, imaginary))
    return inverse, z


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
