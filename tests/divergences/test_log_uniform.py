"""KL of a normal to the log-uniform prior, and its gradient, against scipy's Dawson function."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import dawsn

import bayesify as bf
from bayesify.divergences import kl_to_log_uniform

LOG_ALPHA = np.linspace(-20, 20, 81)


def references() -> tuple[np.ndarray, np.ndarray]:
    """KL = 2 ∫₀^{√u} D(s) ds and dKL/dlog α = −√u D(√u), u = 1/(2α)."""
    roots = np.sqrt(0.5 * np.exp(-LOG_ALPHA))
    edges = [0.0, 1.0, 4.0, 30.0, 1e3, 1e5]
    values = [
        2 * sum(quad(dawsn, a, min(b, r), limit=200)[0] for a, b in pairwise(edges) if r > a) for r in roots
    ]
    return np.array(values), -roots * dawsn(roots)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 5e-8)])
def test_value_and_gradient(dtype: torch.dtype, tolerance: float) -> None:
    value, gradient = references()
    log_alpha = torch.tensor(LOG_ALPHA, dtype=dtype, requires_grad=True)
    ours = kl_to_log_uniform(0.5 * (-log_alpha).exp())
    ours.sum().backward()
    assert log_alpha.grad is not None
    np.testing.assert_allclose(ours.detach().double().numpy(), value, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(log_alpha.grad.double().numpy(), gradient, rtol=tolerance, atol=tolerance)


def test_it_is_zero_without_a_mean_and_has_a_gradient_there() -> None:
    u = torch.zeros(1, requires_grad=True)
    kl_to_log_uniform(u).sum().backward()
    assert u.grad is not None
    assert u.grad.item() == pytest.approx(1, abs=1e-6)
    assert kl_to_log_uniform(u).item() == 0


def test_second_derivatives() -> None:
    assert torch.autograd.gradgradcheck(
        kl_to_log_uniform, torch.tensor([0.3, 5.0, 40.0]).double().requires_grad_()
    )


def test_the_kl_of_a_pair_differs_by_the_constant_of_the_improper_prior() -> None:
    q = bf.family("normal", like=torch.tensor([0.5, -2.0]).double(), init_std=0.3)
    d, p = q.distribution(), bf.prior("log_uniform")
    u = 0.5 * (d.loc / d.scale).square()  # type: ignore[attr-defined]
    at_zero = -0.5 * math.log(2 * math.pi * math.e) - 0.5 * (0.5772156649015329 + math.log(2))
    terms = p.terms()
    assert terms is not None
    torch.testing.assert_close(bf.kl(q, p), kl_to_log_uniform(u).sum() + 2 * (at_zero - terms.constant))
