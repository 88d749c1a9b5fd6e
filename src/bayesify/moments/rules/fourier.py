"""Complex activations and discrete Fourier transforms.

Of a complex tensor the variance is complex too: that of the real part, and that of the imaginary part times i. So
sums, and operations that move entries, act on it as on the mean; both parts are taken as independent.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments, as_moments

SCALES = {"forward": 1.0, "ortho": 0.5, None: 0.0, "backward": 0.0}  # of a forward transform: N^(−scale)


@rule(torch.complex, complex_too=True)
def complex_of(real: Any, imaginary: Any) -> Moments:
    """Variances of real and imaginary part become one complex number."""
    pairs = zip(as_moments(real), as_moments(imaginary), strict=True)
    return Moments(*(torch.complex(*pair) for pair in pairs))


rule(torch.view_as_complex, complex_too=True)(partial(moved, torch.view_as_complex))


@rule(*spelled("conj", "conj_physical"), complex_too=True)
def conjugate(x: Moments) -> Moments:
    """The variances of both parts stay."""
    return Moments(x.mean.conj(), x.var)


def transform(
    operation: Any,
    dims: int | None,
    kind: str,
    x: Moments,
    s: Any = None,
    dim: Any = None,
    norm: str | None = None,
    *,
    n: int | None = None,
) -> Moments:
    """y = N^(−c) Σ_n x_n e^{iθ}, θ = 2π n·k/N, over some dimensions; a and b the variances of both parts of x:

    Var Re y = N^(−2c) Σ (a cos²θ + b sin²θ) = N^(−2c) (F(a + b)₀ + Re F(a − b)_{2k})/2, F the transform itself;
    Var Im y has the other sign. The inverse of half a spectrum counts twice, in the mean, what stands for two entries.
    Over one dimension torch calls the size n.
    """
    s = s if n is None else n
    over = _dimensions(dims, x.mean.dim(), s, dim)
    mean = operation(x.mean, s, over[0] if dims == 1 else over, norm)
    sizes = [x.mean.shape[d] for d in over] if s is None else [s] if isinstance(s, int) else list(s)
    a, b = (x.var.real, x.var.imag) if x.var.is_complex() else (x.var, torch.zeros_like(x.var))
    if kind == "irfft":
        sizes[-1] = mean.shape[over[-1]]
        a, b = (_twice(v, over[-1], sizes[-1]) for v in (a, b))
    total = torch.fft.fftn(a + b, sizes, over).real
    waves = torch.fft.fftn(a - b, sizes, over).real
    for d, size in zip(over, sizes, strict=True):
        total = total.narrow(d, 0, 1)
        waves = waves.index_select(d, 2 * torch.arange(size, device=waves.device) % size)
    scale = SCALES[norm] if kind[0] != "i" else 1 - SCALES[norm]
    factor = 0.5 * math.prod(sizes) ** (-2 * scale)
    real, imaginary = (factor * (total + sign * waves).clamp_min(0) for sign in (1, -1))
    if kind == "irfft":
        return Moments(mean, real)
    length = mean.shape[over[-1]]  # of real numbers torch gives half a spectrum
    return Moments(mean, torch.complex(*(v.narrow(over[-1], 0, length) for v in (real, imaginary))))


def _dimensions(dims: int | None, num: int, s: Any, dim: Any) -> list[int]:
    if dim is None:
        count = dims or (num if s is None else len(s))
        return list(range(num - count, num))
    return [d % num for d in ([dim] if isinstance(dim, int) else dim)]


def _twice(v: Tensor, dim: int, size: int) -> Tensor:
    """Variances of half a spectrum: entries that stand for two count twice, their variances four times."""
    v = v.narrow(dim, 0, min(v.shape[dim], size // 2 + 1))
    alone = torch.arange(v.shape[dim], device=v.device)
    alone = (alone == 0) | (2 * alone == size)
    return torch.where(alone.view(-1, *(1,) * (v.dim() - 1 - dim)), v, 4 * v)


for _kind in ("fft", "ifft", "rfft", "irfft"):
    for _name, _dims in ((_kind, 1), (f"{_kind}2", 2), (f"{_kind}n", None)):
        _operation = getattr(torch.fft, _name)
        rule(_operation, complex_too=True)(partial(transform, _operation, _dims, _kind))
for _operation in (torch.fft.fftshift, torch.fft.ifftshift):
    rule(_operation, half=True, complex_too=True)(partial(moved, _operation))
