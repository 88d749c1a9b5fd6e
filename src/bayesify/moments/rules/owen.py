"""Owen's T function by Gauss–Legendre quadrature."""

import math

import numpy as np
import torch
from torch import Tensor


def _quadrature(count: int) -> list[tuple[float, float]]:
    """Squared places in (0, 1), and weights. Numbers of Python: those of numpy keep a graph out of torch's cache."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return list(zip((((nodes + 1) / 2) ** 2).tolist(), (weights / 2).tolist(), strict=True))


WIDE, NARROW = _quadrature(10), _quadrature(6)  # for float64 and float32


def owens_t(h: Tensor, a: Tensor) -> Tensor:
    """T(h, a) = 1/2π ∫₀^a exp(−h²(1 + x²)/2)/(1 + x²) dx for 0 ≤ a ≤ 1, to 2e-9 in float32, 1e-13 in float64.

    Term by term, not with a dimension of places: of that the compiler would store every number.
    """
    minus, square = -0.5 * h.square(), a.square()
    slope = minus * square
    total = torch.zeros_like(h)
    for place, weight in WIDE if h.dtype == torch.float64 else NARROW:
        total = total + (slope * place).exp() / (square * (place / weight) + 1 / weight)
    return a * minus.exp() * total / (2 * math.pi)
