"""Owen's T function by Gauss–Legendre quadrature."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

NODES, WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(10))


def owens_t(h: Tensor, a: Tensor) -> Tensor:
    """T(h, a) = 1/2π ∫₀^a exp(−h²(1 + x²)/2)/(1 + x²) dx for 0 ≤ a ≤ 1, to 1e-9.

    ∂T/∂h = −φ(h)(Φ(ah) − ½),  ∂T/∂a = exp(−h²(1 + a²)/2)/(2π(1 + a²))
    """
    return _OwensT.apply(h, a)


class _OwensT(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor, a: Tensor) -> Tensor:
        half, total = 0.5 * a, torch.zeros_like(h)
        minus = -0.5 * h.square()
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            spread = 1 + (half * (node + 1)).square()
            total = total + weight * (minus * spread).exp() / spread
        return half * total / (2 * math.pi)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        h, a = ctx.saved_tensors
        density = (-0.5 * h.square()).exp()
        by_h = -density / math.sqrt(2 * math.pi) * (torch.special.ndtr(a * h) - 0.5)
        spread = 1 + a.square()
        by_a = (-0.5 * h.square() * spread).exp() / (2 * math.pi * spread)
        return grad * by_h, grad * by_a
