"""χ² draws of a whole number of degrees in a few vector operations: no rejection, so the compiler fuses them.

Few degrees: −2 log(u₁ ⋯ u_k) has 2k degrees, and z² one more. Else the quantile transform F⁻¹(Φ(z)), z ~ N(0, 1). For
many degrees the map z ↦ χ² is so smooth that a polynomial of low degree gives it to float32's own precision on
|z| ≤ 6.5 (beyond lie 1e-10 of the draws); between few and many a polynomial gives the cube root, which is smoother
(Wilson and Hilferty), to 8e-6 for nine degrees and better for more.
"""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals
from bayesify.laws.noise import Shape

MANY = 49  # degrees from which on the polynomial's relative error is below 1e-7
SOME = 9  # degrees from which on the cube of a polynomial is within 1e-5
REACH = 6.5
CUBE_ORDER = 10
ORDERS = {3: 9998, 4: 998, 5: 498, 6: 199, 8: MANY}  # of the polynomial, and the fewest degrees it serves


def chi_squared(degrees: int, shape: Shape, like: Tensor, generator: Generator | None = None) -> Tensor:
    """χ² of `degrees` degrees of freedom, of the dtype and device of `like`; 0 for 0 degrees."""
    device = like.device if generator is None else generator.device
    dtype = torch.promote_types(like.dtype, torch.float32)
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    if generator is not None:  # torch takes no sizes that are symbols (compiled code) beside this argument
        options["generator"] = generator
    with torch.no_grad():
        if degrees < SOME:
            value = _few(degrees, shape, options)
        elif dtype == torch.float64:
            half = torch.full(shape, degrees / 2, dtype=dtype, device=device)
            value = 2 * internals.standard_gamma(half, generator)
        else:
            value = from_normal(degrees, torch.randn(shape, **options))
    return value.to(like.device, like.dtype)


def _few(degrees: int, shape: tuple[int, ...], options: dict[str, Any]) -> Tensor:
    def uniform() -> Tensor:
        """1 − u > 0, which torch.rand is not."""
        return torch.rand(shape, **options).neg_().add_(1)

    if degrees < 2:
        value = torch.zeros(shape, dtype=options["dtype"], device=options["device"])
    else:
        product = uniform()
        for _ in range(degrees // 2 - 1):
            product.mul_(uniform())
        value = product.log_().mul_(-2)
    if degrees % 2:
        value = value + torch.randn(shape, **options).square()
    return value


def from_normal(degrees: int, normal: Tensor) -> Tensor:
    """The χ² quantile of Φ(z) for z = `normal`, elementwise; within 1e-7 for degrees ≥ MANY, else 1e-5."""
    coefficients = quantile_polynomial(degrees)
    value = normal.mul(coefficients[-1]).add_(coefficients[-2])
    for c in reversed(coefficients[:-2]):
        value.mul_(normal).add_(c)
    return value if degrees >= MANY else value.square().mul_(value)


@internals.constant_when_traced
def quantile_polynomial(degrees: int) -> tuple[float, ...]:
    """Coefficients, lowest first, of the polynomial in z that gives the quantile of Φ(z), or its cube root."""
    if degrees not in _POLYNOMIALS:
        _POLYNOMIALS[degrees] = _fit(degrees)
    return _POLYNOMIALS[degrees]


_POLYNOMIALS: dict[int, tuple[float, ...]] = {}


def _fit(degrees: int) -> tuple[float, ...]:
    """Least squares at Chebyshev points: nearly the best polynomial in the largest error."""
    order = next((order for order, least in ORDERS.items() if degrees >= least), CUBE_ORDER)
    points = torch.cos(math.pi * (torch.arange(64, dtype=torch.float64) + 0.5) / 64)  # in [−1, 1]
    powers = points[:, None] ** torch.arange(order + 1, dtype=torch.float64)
    values = _quantiles(degrees, REACH * points) ** (1 if degrees >= MANY else 1 / 3)
    relative = powers / values[:, None]  # what counts is the relative error
    solution = torch.linalg.lstsq(relative, torch.ones_like(values)[:, None]).solution[:, 0]
    return tuple(c / REACH**k for k, c in enumerate(solution.tolist()))


def _quantiles(degrees: int, z: Tensor) -> Tensor:
    """F⁻¹(Φ(z)) by bisection, each tail measured from its own end."""
    half = torch.full_like(z, degrees / 2)
    tail = torch.special.ndtr(-z.abs())
    low, high = torch.zeros_like(z), half + 20 * half.sqrt() + 100
    for _ in range(100):
        middle = (low + high) / 2
        below = torch.special.gammainc(half, middle) < tail
        above = torch.special.gammaincc(half, middle) > tail
        left = torch.where(z < 0, below, above)  # the quantile lies above `middle`
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    return low + high  # 2 · (low + high)/2
