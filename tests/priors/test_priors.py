"""Priors of independent numbers against scipy: density, gradients, total mass, terms, compiled code."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from prior_cases import BY_TENSOR, CASES, JOINT, LAWS, OPTIONS

import bayesify as bf
from bayesify.laws.features import absolute, log, power
from bayesify.priors import PRIORS, Prior


def points(p: Prior) -> torch.Tensor:
    """Values inside the support and, where there is an outside, beyond it."""
    inside = torch.logspace(-2, 0.8, 30, dtype=torch.float64)
    if p.lower > -math.inf:
        return torch.cat([p.lower + inside, p.lower - inside])
    return torch.cat([inside, -inside])


def test_every_registered_prior_has_a_case() -> None:
    assert set(LAWS) | set(JOINT) | set(BY_TENSOR) == set(PRIORS)
    assert all(name == kind.name and kind.__doc__ for name, kind in PRIORS.items())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_the_density_is_that_of_scipy(
    name: str, options: dict[str, Any], law: Any, dtype: torch.dtype, tolerance: float
) -> None:
    p = bf.prior(name, **options)
    value = points(p).to(dtype)
    found = p.log_prob(value)
    assert found.dtype == dtype
    with np.errstate(divide="ignore"):
        expected = law(value.double().numpy())
    np.testing.assert_allclose(found.double(), expected, rtol=tolerance, atol=tolerance)
    if p.lower > -math.inf:
        assert (found[30:] == -math.inf).all()


@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_gradients_are_right_inside_and_zero_outside_the_support(
    name: str, options: dict[str, Any], law: Any
) -> None:
    p = bf.prior(name, **options)
    value = points(p).requires_grad_()
    (gradient,) = torch.autograd.grad(p.log_prob(value).sum(), value)
    assert gradient.isfinite().all()
    if p.lower > -math.inf:
        assert (gradient[30:] == 0).all()
    inside = value.detach()[5:25].requires_grad_()
    assert torch.autograd.gradcheck(p.log_prob, inside, rtol=1e-4)


@pytest.mark.parametrize(("name", "options", "law"), [case for case in CASES if case[0] != "log_uniform"])
def test_the_total_mass_is_one(name: str, options: dict[str, Any], law: Any) -> None:
    """∫ p(w) dw over lower + e^y, and −e^y for the whole line, by the trapezoidal rule in y."""
    p = bf.prior(name, **options)
    y = torch.linspace(-60, 40, 50_001, dtype=torch.float64)
    start = max(p.lower, 0.0)
    parts = [start + y.exp()] + ([-y.exp()] if p.lower < 0 else [])
    total = sum(float((p.log_prob(w) + y).exp().sum() * (y[1] - y[0])) for w in parts)
    assert total == pytest.approx(1, abs=1e-4 if name == "error" and options.get("loc") else 1e-6)


@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_terms_add_up_to_the_density(name: str, options: dict[str, Any], law: Any) -> None:
    p = bf.prior(name, **options)
    terms = p.terms()
    if terms is None:
        assert name in ("logistic", "student_t", "horseshoe", "normal_mixture") or options.get("loc")
        return
    value = points(p)[:30] if p.lower > -math.inf else points(p)
    total = terms.constant + sum(c * feature(value) for feature, c in terms.coefficients.items())
    torch.testing.assert_close(total, p.log_prob(value), rtol=1e-9, atol=1e-9)


def test_features_of_some_priors() -> None:
    assert set(bf.prior("gamma").terms().coefficients) == {log(1), power(1)}
    assert set(bf.prior("laplace").terms().coefficients) == {absolute(1)}
    assert set(bf.prior("error", tail=0.5).terms().coefficients) == {power(4)}
    assert set(bf.prior("error", tail=0.5, loc=1.0).terms().coefficients) == {power(k) for k in (1, 2, 3, 4)}
    assert bf.prior("error", tail=2.0, loc=1.0).terms() is None


@pytest.mark.parametrize(("name", "options"), [case for case in OPTIONS if case[0] not in BY_TENSOR])
def test_one_density_per_tensor(name: str, options: dict[str, Any]) -> None:
    p = bf.prior(name, **options)
    value = 1.5 + torch.rand(5, 2, 3, dtype=torch.float64)
    if name == "dirichlet":
        value = value / value.sum(-1, keepdim=True)
    found = p.tensor_log_prob(value, 2)
    assert found.shape == (5,)
    torch.testing.assert_close(found[1], p.log_prob(value[1]).sum())
    if p.independent:
        torch.testing.assert_close(p.tensor_log_prob(value[0, 0, 0], 0), p.log_prob(value[0, 0, 0]))


@pytest.mark.parametrize("name", sorted(set(PRIORS) - set(BY_TENSOR) - {"dirichlet"}))
def test_densities_trace_in_one_graph_and_batch(name: str) -> None:
    """torch.compile(fullgraph=True), with other numbers a second time; vmap."""
    torch.compiler.reset()
    choices = [options for options, _ in LAWS.get(name, [(JOINT.get(name, {}), None)])]

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(p: Prior, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        terms = p.terms()
        if terms is None:
            return p.log_prob(w), p.log_prob(w)
        return p.log_prob(w), terms.constant + sum(c * f(w) for f, c in terms.coefficients.items())

    w = torch.rand(3) + 1
    for p in [bf.prior(name), *(bf.prior(name, **options) for options in choices)]:
        for found in compiled(p, w):
            torch.testing.assert_close(found, p.log_prob(w), atol=1e-5, rtol=1e-5)
        each = torch.func.vmap(p.log_prob)(w.expand(2, 3))
        torch.testing.assert_close(each, torch.stack([p.log_prob(w)] * 2))


@pytest.mark.parametrize("z", [0.0, 0.7, -3.0, 30.0])
def test_the_logistic_prior_is_smooth(z: float) -> None:
    """(log p)′ = −tanh(z/2)/scale and its next two derivatives, also at z = 0, which has no kink."""
    scale, t = 0.5, math.tanh(z / 2)
    value = torch.tensor(0.3 + scale * z, dtype=torch.float64, requires_grad=True)
    derivative = bf.prior("logistic", loc=0.3, scale=scale).log_prob(value)
    for k, exact in enumerate([-t, -(1 - t**2) / 2, t * (1 - t**2) / 2], start=1):
        (derivative,) = torch.autograd.grad(derivative, value, create_graph=True)
        assert derivative.item() == pytest.approx(exact / scale**k, rel=1e-9, abs=1e-12)
