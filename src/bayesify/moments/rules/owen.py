"""Owen's T function by Gauss–Legendre quadrature."""

import math

import numpy as np
import torch
from torch import Tensor


def _quadrature(count: int) -> tuple[list[float], list[float]]:
    """Places in (0, 1) and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return ((nodes + 1) / 2).tolist(), (weights / 2).tolist()


WIDE, NARROW = _quadrature(10), _quadrature(7)  # for float64 and float32


def owens_t(h: Tensor, a: Tensor) -> Tensor:
    """T(h, a) = 1/2π ∫₀^a exp(−h²(1 + x²)/2)/(1 + x²) dx for 0 ≤ a ≤ 1, to 1e-9 in float32, 1e-13 in float64."""
    places, weights = WIDE if h.dtype == torch.float64 else NARROW
    minus = -0.5 * h.square()
    if torch.compiler.is_compiling():  # few operations to trace; the compiler writes out sums of fewer than 8
        x = a.unsqueeze(-1) * torch.tensor(places, dtype=a.dtype, device=a.device)  # (..., places)
        spread = 1 + x.square()
        terms = (minus.unsqueeze(-1) * spread).exp() / spread
        return a * (terms * torch.tensor(weights, dtype=a.dtype, device=a.device)).sum(-1) / (2 * math.pi)
    total = torch.zeros_like(h)
    for place, weight in zip(places, weights, strict=True):
        spread = 1 + (a * place).square()
        total = total + weight * (minus * spread).exp() / spread
    return a * total / (2 * math.pi)
