"""KL of a normal to the log-uniform prior p(w) ∝ 1/|w|, exact (paper 5, corrected).

    KL(u) = 2 ∫₀^{√u} D(s) ds,     dKL/du = D(√u)/√u,     u = μ²/(2σ²) = 1/(2α),  D = Dawson's function

normalised to 0 at u = 0 (the prior is improper). In log α the gradient is −√u D(√u). torch has no D, so value and
slope are Chebyshev sums in t = u/(u + 4), which maps [0, ∞) to [0, 1): KL = ½ log(1 + 2u) + t R(t) and
dKL/du = S(t)/(1 + 2u). Both are within 4e-8 of the true value; what is seen in float32 is rounding (< 6e-7).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import transformed
from bayesify.moments.recompute import OfInputs

FEW = 2**10  # numbers for which operations take longer than their arithmetic
MIDDLE = 4.0  # the u at which t = 1/2
R: tuple[float, ...] = (
    0.716480577, 0.112359812, -0.325216979, 0.179758057, -0.0620819521, 0.0199396944,
    -0.00937147906, 0.00462412104, -0.00177701573, 0.000712372345, -0.000363243833, 0.000158585147,
    -6.12121832e-05, 3.09022378e-05, -1.45471209e-05, 5.46368891e-06, -2.78106772e-06, 1.38141743e-06,
    -4.8882372e-07, 2.62566151e-07, -1.3560679e-07, 4.21381254e-08, -2.64354066e-08, 1.35824595e-08,
    -3.23503908e-09,
)  # fmt: skip
S: tuple[float, ...] = (
    1.2352983, -0.174222801, -0.187081806, 0.183235277, -0.0558656526, -0.010261636,
    0.0088973985, 0.00164030936, -0.0014274553, -0.000517347076, 0.000183734345, 0.000157476243,
    5.82240744e-06, -3.51073017e-05, -1.47364289e-05, 2.82406757e-06, 5.12861698e-06, 1.67483662e-06,
    -5.83356426e-07, -7.86322511e-07, -2.64750447e-07, 8.21510752e-08, 1.2974723e-07, 5.46763873e-08,
    -6.17521714e-09,
)  # fmt: skip


def kl_to_log_uniform(u: Tensor) -> Tensor:
    """KL of N(μ, σ²) to the log-uniform prior for u = μ²/(2σ²), elementwise.

    >>> kl_to_log_uniform(torch.tensor([0.0, 0.5, 50.0]))
    tensor([0.0000, 0.4285, 2.9327])
    """
    return _Value.apply(u)


def dawson_slope(u: Tensor) -> Tensor:
    """D(√u)/√u for u ≥ 0: 1 at 0, 1/(2u) far out."""
    return _chebyshev(S, u) / (1 + 2 * u)


class _Value(OfInputs):
    @staticmethod
    def forward(u: Tensor) -> Tensor:
        return 0.5 * torch.log1p(2 * u) + u / (u + MIDDLE) * _chebyshev(R, u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * dawson_slope(*ctx.saved_tensors)


def _chebyshev(coefficients: Sequence[float], u: Tensor) -> Tensor:
    """Σ_k c_k T_k(2t − 1), t = u/(u + 4): of few numbers as one product, else by Clenshaw's recurrence."""
    x = 1 - 2 * MIDDLE / (u + MIDDLE)
    if x.numel() <= FEW and not (torch.is_grad_enabled() and x.requires_grad) and not transformed():
        c = x.new_tensor(coefficients)
        degrees = torch.arange(len(c), device=x.device)
        return torch.special.chebyshev_polynomial_t(x[..., None], degrees) @ c
    twice, after, later = 2 * x, torch.zeros_like(x), torch.zeros_like(x)
    for constant in reversed(coefficients[1:]):
        after, later = torch.addcmul(constant - later, twice, after), after
    return x * after - later + coefficients[0]
