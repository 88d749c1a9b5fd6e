"""Exact moments of a normal input against quadrature, and their gradients."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from propagation import EXACT, propagate
from scipy import special
from torch import Tensor, nn

import bayesify as bf
from bayesify.moments.notes import magnitude
from bayesify.moments.rules import exact
from bayesify.moments.rules.gates import gated
from bayesify.moments.rules.owen import NARROW, WIDE, owens_t
from bayesify.moments.values import Moments

MEANS = torch.tensor([-4.0, -1.0, -0.3, 0.0, 0.2, 1.0, 2.5, 6.0]).double()
VARS = (1e-6, 1e-3, 0.05, 0.64, 3.0)
FUNCTIONS = {
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "abs": (torch.abs, np.abs),
    "gelu": (F.gelu, lambda x: x * special.ndtr(x)),
    "square": (torch.square, np.square),
    "x * x": (lambda x: x * x, np.square),
    "x ** 2": (lambda x: x**2, np.square),
    "exp": (torch.exp, np.exp),
    "sin": (torch.sin, np.sin),
    "cos": (torch.cos, np.cos),
}


def quadrature(function, mean: float, var: float) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """By the trapezoid rule on ±12 standard deviations: for kinks its error is of the order (step σ)²."""
    z = np.linspace(-12, 12, 240_001)
    weight = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    y = function(mean + math.sqrt(var) * z)
    first = (weight * y).sum()
    return first, (weight * (y - first) ** 2).sum()


@pytest.mark.parametrize("var", VARS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_exact_moments_equal_quadrature(name: str, var: float) -> None:
    function, reference = FUNCTIONS[name]
    result = propagate(function, bf.Moments(MEANS, torch.full_like(MEANS, var)), forms=EXACT)
    expected = torch.tensor([quadrature(reference, m, var) for m in MEANS.tolist()]).double()
    torch.testing.assert_close(result.mean, expected[:, 0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(result.var, expected[:, 1], rtol=1e-6, atol=1e-9 * var)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_keeps_small_variances(name: str) -> None:
    """Against float64, to 3e-4 of the input's variance times the largest slope."""
    function, _ = FUNCTIONS[name]
    for var in VARS:
        x = bf.Moments(MEANS, torch.full_like(MEANS, var))
        narrow = propagate(function, bf.Moments(*(t.float() for t in x)), forms=EXACT)
        wide = propagate(function, x, forms=EXACT)
        torch.testing.assert_close(narrow.mean.double(), wide.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(narrow.var.double(), wide.var, rtol=1e-3, atol=3e-4 * var)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    function, _ = FUNCTIONS[name]
    mean, var = MEANS[1:-1].clone().requires_grad_(), torch.rand(6).double().add(0.1).requires_grad_()

    def moments(m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return tuple(propagate(function, bf.Moments(m, v), forms=EXACT))

    assert torch.autograd.gradcheck(moments, (mean, var))


def test_derivatives_kept_in_16_bits_are_off_by_less_than_a_hundredth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bayesify.moments.rules import exact

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        mean, var = torch.randn(200).requires_grad_(), torch.rand(200).requires_grad_()
        result = propagate(F.relu, bf.Moments(mean, var), forms=EXACT)
        return torch.autograd.grad(result.mean.sum() + result.var.sum(), (mean, var))

    wide = gradients()
    monkeypatch.setattr(exact, "SMALL_ON", ("cpu",))
    for rounded, expected in zip(gradients(), wide, strict=True):
        assert not torch.equal(rounded, expected)
        torch.testing.assert_close(rounded, expected, rtol=0.01, atol=1e-3)


def test_at_the_example_of_the_formulas_first_order_is_twice_too_large() -> None:
    x = bf.Moments(torch.tensor([0.3]).double(), torch.tensor([0.64]).double())
    assert propagate(F.relu, x).var.item() == pytest.approx(0.64)
    assert propagate(F.relu, x, forms=EXACT).var.item() == pytest.approx(0.32, abs=0.005)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "gelu"])
def test_without_variance_nothing_but_the_function_is_left(name: str) -> None:
    function, _ = FUNCTIONS[name]
    mean, var = MEANS.clone().requires_grad_(), torch.zeros(8).double().requires_grad_()
    result = propagate(function, bf.Moments(mean, var), forms=EXACT)
    torch.testing.assert_close(result.mean, function(MEANS), rtol=0, atol=1e-6)
    assert result.var.max() == 0
    (result.mean.sum() + result.var.sum()).backward()
    assert mean.grad.isfinite().all() and var.grad.isfinite().all()  # type: ignore[union-attr]


def test_owens_t_equals_scipy() -> None:
    h = torch.linspace(-8, 8, 161).double()[:, None].expand(161, 50).contiguous()
    a = torch.linspace(0.01, 1, 50).double()[None].expand(161, 50).contiguous()
    assert abs(owens_t(h, a).numpy() - special.owens_t(h.numpy(), a.numpy())).max() < 1e-10
    part = (h[::40, ::20].clone().requires_grad_(), a[::40, ::20].clone().requires_grad_())
    assert torch.autograd.gradcheck(owens_t, part)


def test_compiled_graphs_of_owens_t_can_be_cached() -> None:
    """A number of numpy in a graph keeps it out: every process would compile a transformer anew, for minutes."""
    assert {type(number) for pair in (*WIDE, *NARROW) for number in pair} == {float}


def test_what_has_no_closed_form_stays_first_order() -> None:
    x = bf.Moments(MEANS, torch.full_like(MEANS, 0.5))
    for function in (torch.tanh, F.silu, lambda t: F.gelu(t, approximate="tanh"), lambda t: t**3):
        first, exact = propagate(function, x), propagate(function, x, forms=EXACT)
        assert torch.equal(first.mean, exact.mean) and torch.equal(first.var, exact.var)


def test_a_rule_of_ones_own_replaces_the_exact_one_too() -> None:
    rules, exact = dict(bf.moments.RULES), dict(bf.moments.FORMS["exact"])
    try:
        bf.moments.rule(F.relu)(lambda x: bf.Moments(x.mean, x.var + 1))
        x = bf.Moments(MEANS, torch.full_like(MEANS, 0.5))
        assert torch.equal(propagate(F.relu, x, forms=EXACT).var, x.var + 1)
    finally:
        for table, kept in ((bf.moments.RULES, rules), (bf.moments.FORMS["exact"], exact)):
            table.clear()
            table.update(kept)


@pytest.mark.parametrize("activation", ["exact", "first_order"])
def test_second_derivatives_are_right_or_refused(activation: str) -> None:
    """Of networks whose loss holds derivatives by the input."""
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model = bf.bayesify(net, bf.DensityPropagation(activation=activation), num_data=10).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def slopes(x: Tensor) -> Tensor:
        return torch.autograd.grad(model(x).var.sum(), x, create_graph=True)[0]

    if activation == "exact":
        with pytest.raises(RuntimeError, match="differentiate twice"):
            slopes(x).sum().backward()
    else:
        assert torch.autograd.gradcheck(slopes, x)


def test_relu_of_a_tape_is_the_leaky_one_without_a_leak_with_its_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, std = torch.randn(2, 200, dtype=torch.float64, generator=generator)
    inputs = mean.requires_grad_(), std.square().add(0.01).requires_grad_()

    def flat(rule: Any, *args: Any) -> tuple[Tensor, ...]:
        y, slope, own = gated(rule, None, Moments(*inputs), *args)
        return (*y, slope, own)

    for one, other in zip(flat(exact.relu), flat(exact.leaky_relu, 0.0), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        gradients = [
            torch.autograd.grad(each.square().sum(), inputs, retain_graph=True) for each in (one, other)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


def test_the_derivative_of_what_noise_meets() -> None:
    generator = torch.Generator().manual_seed(1)
    x, std = torch.randn(2, 50, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(magnitude, (x.requires_grad_(), std.square().add(0.01).requires_grad_()))
