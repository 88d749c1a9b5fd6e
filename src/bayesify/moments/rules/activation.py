"""Elementwise non-linearities to first order: E f(x) = f(E x), Var f(x) = f′(E x)² Var x (paper 3, eq. 4 and 5)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import rule, spelled
from bayesify.moments.rules.arithmetic import mul
from bayesify.moments.rules.extremes import extreme_of_two
from bayesify.moments.values import Gaussian, Moments, parts


def scaled(mean: Tensor, slope: Tensor, x: Any) -> Any:
    """Var y = slope² Var x; of a full covariance Cov y = Cov x ∘ slope slopeᵀ."""
    if isinstance(x, Gaussian):
        flat = slope.flatten(1)
        return Gaussian(mean, x.cov * flat[:, :, None] * flat[:, None, :])
    return Moments(mean, slope.square() * x.var)


@rule(*spelled("relu", "relu_"))
def relu(x: Moments) -> Moments:
    """f′ = 1 above 0, else 0."""
    return Moments(x.mean.relu(), torch.where(x.mean > 0, x.var, 0.0))


@rule(*spelled("leaky_relu", "leaky_relu_"))
def leaky_relu(x: Moments, negative_slope: float = 0.01) -> Moments:
    """f′ = 1 above 0, else the slope."""
    return Moments(
        F.leaky_relu(x.mean, negative_slope), torch.where(x.mean > 0, x.var, negative_slope**2 * x.var)
    )


@rule(*spelled("prelu"))
def prelu(x: Any, weight: Any) -> Moments:
    """The slope a of the negative half may be random too: Var (a x) = a² Var x + Var a ((E x)² + Var x)."""
    (mean, var), (a, a_var) = parts(x), parts(weight)
    shape = (1, -1) + (1,) * (mean.dim() - 2) if a.numel() > 1 else (1,) * mean.dim()
    slope = a.view(shape).square()
    negative = slope * var if var is not None else torch.zeros_like(mean)
    if a_var is not None:
        negative = negative + a_var.view(shape) * (mean.square() if var is None else mean.square() + var)
    positive = torch.zeros_like(mean) if var is None else var
    return Moments(F.prelu(mean, a), torch.where(mean > 0, positive, negative))


@rule(F.rrelu, *spelled("rrelu_"))
def rrelu(x: Moments, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Moments:
    """In training the slope of the negative half is uniform in [lower, upper], else the mean of both."""
    slope = torch.full((1,), (lower + upper) / 2, dtype=x.mean.dtype, device=x.mean.device)
    spread = torch.full_like(slope, (upper - lower) ** 2 / 12 if training else 0.0)
    return prelu(x, Moments(slope, spread))


@rule(*spelled("elu", "elu_"))
def elu(x: Moments, alpha: float = 1.0) -> Moments:
    """f′ = α eˣ below 0."""
    return scaled(F.elu(x.mean, alpha), torch.where(x.mean > 0, 1.0, alpha * x.mean.clamp_max(0).exp()), x)


@rule(*spelled("celu", "celu_"))
def celu(x: Moments, alpha: float = 1.0) -> Moments:
    """f′ = e^{x/α} below 0."""
    return scaled(F.celu(x.mean, alpha), (x.mean / alpha).clamp_max(0).exp(), x)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@rule(*spelled("selu", "selu_"))
def selu(x: Moments) -> Moments:
    """f′ = scale above 0, scale · α eˣ below."""
    slope = torch.where(x.mean > 0, SELU_SCALE, SELU_SCALE * SELU_ALPHA * x.mean.clamp_max(0).exp())
    return scaled(F.selu(x.mean), slope, x)


@rule(F.gelu)
def gelu(x: Moments, approximate: str = "none") -> Moments:
    """GELU′ = Φ(x) + x φ(x); of the tanh form ½(1 + t) + ½ x (1 − t²) u′, t = tanh u, u = √(2/π)(x + 0.044715 x³)."""
    m = x.mean
    if approximate == "tanh":
        c = math.sqrt(2 / math.pi)
        t = (c * (m + 0.044715 * m**3)).tanh()
        slope = 0.5 * (1 + t) + 0.5 * m * (1 - t.square()) * c * (1 + 3 * 0.044715 * m.square())
    else:
        slope = torch.special.ndtr(m) + m * (-0.5 * m.square()).exp() / math.sqrt(2 * math.pi)
    return scaled(F.gelu(m, approximate=approximate), slope, x)


@rule(*spelled("silu", "silu_"))
def silu(x: Moments) -> Moments:
    """f′ = s (1 + x (1 − s)), s = sigmoid x."""
    s = x.mean.sigmoid()
    return scaled(F.silu(x.mean), s * (1 + x.mean * (1 - s)), x)


@rule(*spelled("mish", "mish_"))
def mish(x: Moments) -> Moments:
    """x tanh(softplus x): derivative t + x (1 − t²) sigmoid(x)."""
    t = F.softplus(x.mean).tanh()
    return scaled(F.mish(x.mean), t + x.mean * (1 - t.square()) * x.mean.sigmoid(), x)


@rule(*spelled("softplus"))
def softplus(x: Moments, beta: float = 1.0, threshold: float = 20.0) -> Moments:
    """f′ = sigmoid βx."""
    return scaled(F.softplus(x.mean, beta, threshold), (beta * x.mean).sigmoid(), x)


@rule(*spelled("softsign"))
def softsign(x: Moments) -> Moments:
    """f′ = (1 + |x|)⁻²."""
    return scaled(F.softsign(x.mean), (1 + x.mean.abs()).pow(-2), x)


@rule(*spelled("sigmoid", "sigmoid_", "expit"))
def sigmoid(x: Moments) -> Moments:
    """f′ = s (1 − s)."""
    s = x.mean.sigmoid()
    return scaled(s, s * (1 - s), x)


@rule(*spelled("logsigmoid"))
def logsigmoid(x: Moments) -> Moments:
    """f′ = sigmoid(−x)."""
    return scaled(F.logsigmoid(x.mean), (-x.mean).sigmoid(), x)


@rule(*spelled("tanh", "tanh_"))
def tanh(x: Moments) -> Moments:
    """f′ = 1 − tanh² x."""
    t = x.mean.tanh()
    return scaled(t, 1 - t.square(), x)


@rule(*spelled("tanhshrink"))
def tanhshrink(x: Moments) -> Moments:
    """x − tanh x: derivative tanh² x."""
    return scaled(F.tanhshrink(x.mean), x.mean.tanh().square(), x)


@rule(*spelled("softshrink"))
def softshrink(x: Moments, lambd: float = 0.5) -> Moments:
    """f′ = 1 outside ±λ, else 0."""
    return Moments(F.softshrink(x.mean, lambd), torch.where(x.mean.abs() > lambd, x.var, 0.0))


@rule(*spelled("hardshrink"))
def hardshrink(x: Moments, lambd: float = 0.5) -> Moments:
    """f′ = 1 outside ±λ, else 0."""
    return Moments(F.hardshrink(x.mean, lambd), torch.where(x.mean.abs() > lambd, x.var, 0.0))


@rule(*spelled("hardswish", "hardswish_"))
def hardswish(x: Moments) -> Moments:
    """x (x + 3)/6 between −3 and 3: derivative (2x + 3)/6 there, 0 below and 1 above."""
    inside = torch.where(x.mean < 3, (2 * x.mean + 3) / 6, 1.0)
    return scaled(F.hardswish(x.mean), torch.where(x.mean > -3, inside, 0.0), x)


@rule(*spelled("hardsigmoid"))
def hardsigmoid(x: Moments) -> Moments:
    """f′ = 1/6 inside ±3, else 0."""
    return Moments(F.hardsigmoid(x.mean), torch.where(x.mean.abs() < 3, x.var / 36, 0.0))


@rule(*spelled("threshold", "threshold_", "_threshold"))
def threshold(x: Moments, threshold: float, value: float) -> Moments:
    """f′ = 1 above the threshold, else 0."""
    above = x.mean > threshold
    return Moments(torch.where(above, x.mean, value), torch.where(above, x.var, 0.0))


@rule(*spelled("clamp", "clamp_", "clip", "clip_"))
def clamp(x: Any, min: Any = None, max: Any = None) -> Moments:
    """f′ = 1 between the bounds, which may be random themselves."""
    if any(isinstance(bound, Moments) for bound in (min, max)):
        for ahead, bound in ((torch.ge, min), (torch.le, max)):
            x = x if bound is None else extreme_of_two(ahead, x, bound)
        return x
    mean = x.mean.clamp(min, max)
    return Moments(mean, torch.where(mean == x.mean, x.var, 0.0))


@rule(*spelled("clamp_min", "clamp_min_"))
def clamp_min(x: Moments, min: Any) -> Moments:
    """`clamp` from below."""
    return clamp(x, min=min)


@rule(*spelled("clamp_max", "clamp_max_"))
def clamp_max(x: Moments, max: Any) -> Moments:
    """`clamp` from above."""
    return clamp(x, max=max)


@rule(*spelled("hardtanh", "hardtanh_"))
def hardtanh(x: Moments, min_val: float = -1.0, max_val: float = 1.0) -> Moments:
    """`clamp` to [min_val, max_val]."""
    return clamp(x, min_val, max_val)


@rule(*spelled("relu6"))
def relu6(x: Moments) -> Moments:
    """`clamp` to [0, 6]."""
    return clamp(x, 0.0, 6.0)


@rule(F.glu)
def glu(x: Moments, dim: int = -1) -> Moments:
    """a sigmoid(b), a and b the halves of x: a product of independent factors."""
    (a, b), (a_var, b_var) = (t.chunk(2, dim) for t in x)
    return mul(Moments(a, a_var), sigmoid(Moments(b, b_var)))
