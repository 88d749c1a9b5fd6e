"""Special functions against scipy and 40 digits of mpmath."""

import math

import mpmath
import pytest
import torch
from scipy import special as reference

from bayesify.laws import special

POINTS = [0.01, 0.3, 1.0, 2.5, 7.0, 40.0, 1e6, 1e9]


@pytest.mark.parametrize("x", POINTS)
def test_functions_of_plain_numbers(x: float) -> None:
    assert special.digamma(x) == pytest.approx(reference.digamma(x), rel=1e-13, abs=1e-14)
    assert special.trigamma(x) == pytest.approx(reference.polygamma(1, x), rel=1e-12)
    assert special.inverse_trigamma(special.trigamma(x)) == pytest.approx(x, rel=1e-6)
    with mpmath.workdps(40):
        m = mpmath.mpf(x)
        stirling = float(mpmath.loggamma(m) - (m - 0.5) * mpmath.log(m) + m)
        assert special.stirling(x) == pytest.approx(stirling, rel=1e-13)
        for p in (0.5, -0.005, 3, -1, 2.5, -2.7):
            expected = mpmath.exp(mpmath.loggamma(m + p) - mpmath.loggamma(m)) if x + p > 0 else math.inf
            assert special.gamma_ratio(x, p) == pytest.approx(float(expected), rel=1e-12), p


@pytest.mark.parametrize("s", [-0.9, -0.5, 0.0, 0.5, 1.0, 2.0, 3.7, 8.0])
def test_alternating_zeta(s: float) -> None:
    assert special.alternating_zeta(s) == pytest.approx(float(mpmath.altzeta(s)), rel=1e-13)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.3, -2.5, 4.5])
def test_bessel_k(order: float) -> None:
    assert special.bessel_k(order, 1.0) == pytest.approx(reference.kv(order, 1.0), rel=1e-13)


def log_scaled_e1(x: float) -> tuple[float, float]:
    """Value and derivative in 60 digits; the continued fraction where E₁ itself underflows."""
    with mpmath.workdps(60):
        m = mpmath.mpf(x)
        if m < 300:
            h = m * mpmath.exp(m) * mpmath.e1(m)
        else:
            tail = mpmath.mpf(0)
            for n in range(60, 0, -1):
                tail = n * n / (m + 2 * n + 1 - tail)
            h = m / (m + 1 - tail)
        return float(mpmath.log(h / m)), float(1 - 1 / h)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_log_scaled_e1_and_its_derivative(dtype: torch.dtype) -> None:
    """On (0, 1e30); relative to 1 + |f|, to a few roundings."""
    smallest = {torch.float64: -300, torch.float32: -37}[dtype]
    x = torch.cat([torch.logspace(smallest, 30, 60, dtype=dtype), torch.logspace(-2, 2, 81, dtype=dtype)])
    values, slopes = torch.tensor([log_scaled_e1(v) for v in x.tolist()], dtype=torch.float64).T
    x.requires_grad_()
    found = special.log_scaled_e1(x)
    (slope,) = torch.autograd.grad(found.sum(), x)
    eps = torch.finfo(dtype).eps
    assert ((found - values).abs() / (1 + values.abs())).max() < 8 * eps
    assert (slope.double() / slopes - 1).abs().max() < 16 * eps


def test_log_scaled_e1_has_second_derivatives_and_ends() -> None:
    x = torch.tensor([0.2, 3.0, 50.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(special.log_scaled_e1, x)
    assert torch.autograd.gradgradcheck(special.log_scaled_e1, x)
    assert special.log_scaled_e1(torch.tensor([0.0, math.inf])).isfinite().all()
