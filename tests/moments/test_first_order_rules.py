"""First-order rules, and rules of linear operations, against the Jacobian by autograd: equal to rounding."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from propagation import by_jacobian, propagate, random_moments
from rule_tables import ELEMENTWISE, JOINT, POSITIVE
from torch import nn

import bayesify as bf


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_function(name: str) -> None:
    x = random_moments(60)
    x = bf.Moments(3 * x.mean, x.var)
    tolerance = 1e-6 if name in ROUNDED else 1e-9
    assert_same(propagate(ELEMENTWISE[name], x), by_jacobian(ELEMENTWISE[name], x), tolerance)


@pytest.mark.parametrize("name", POSITIVE)
def test_an_elementwise_function_of_positive_numbers(name: str) -> None:
    x = random_moments(60)
    x = bf.Moments(x.mean.abs() + 0.2, x.var)
    assert_same(propagate(POSITIVE[name], x), by_jacobian(POSITIVE[name], x))


ROUNDED = ("celu", "hardsigmoid")  # torch computes their derivatives with constants in float32


def assert_same(result: bf.Moments, expected: bf.Moments, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(result.mean, expected.mean, rtol=tolerance, atol=1e-12)
    torch.testing.assert_close(result.var, expected.var, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("name", JOINT)
def test_a_rule_equals_the_jacobian(name: str) -> None:
    function, shape = JOINT[name]
    x = random_moments(*shape)
    result, expected = propagate(function, x), by_jacobian(function, x)
    tolerance = 1e-5 if name == "to another type" else 1e-9
    assert_same(result, expected, tolerance)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_rules_do_not_depend_on_the_shape(sizes: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    x = random_moments(*sizes)
    for function in (
        lambda t: F.softmax(t, -1),
        lambda t: F.layer_norm(t, t.shape[-1:], eps=0.1),
        lambda t: F.gelu(2 * t + 1).sum(0, keepdim=True),
    ):
        assert_same(propagate(function, x), by_jacobian(function, x))


@pytest.mark.parametrize("norm", ["layer", "group", "instance"])
def test_the_simple_form_of_a_norm_only_scales(norm: str) -> None:
    x, gain, gains = random_moments(3, 2, 8), torch.rand(8).double(), torch.rand(2).double()
    function, factor = {
        "layer": (lambda t: F.layer_norm(t, (8,), gain), gain),
        "group": (lambda t: F.group_norm(t, 2, gains), gains[:, None]),
        "instance": (lambda t: F.instance_norm(t, weight=gains), gains[:, None]),
    }[norm]
    result = propagate(function, x, forms=("simple", ""))
    v = x.mean.var(-1, correction=0, keepdim=True)
    torch.testing.assert_close(result.var, factor.square() * x.var / (v + 1e-5))
    full = propagate(function, x)
    assert torch.equal(result.mean, full.mean) and not torch.allclose(result.var, full.var, rtol=0.05)


@pytest.mark.parametrize("var", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("norm", ["layer", "rms", "group", "instance", "length"])
def test_the_total_form_of_a_norm_stays_right_for_large_variances(norm: str, var: float) -> None:
    """Against Monte Carlo within 5 %, the error of 4000 draws (2 %) included; the full form, which divides by the
    means alone, is off by more than the variance itself at var = 2."""
    function = {
        "layer": lambda t: F.layer_norm(t, (64,)),
        "rms": lambda t: F.rms_norm(t, (64,)),
        "length": lambda t: F.normalize(t, dim=-1),
        "group": lambda t: F.group_norm(t.unflatten(-1, (4, 32)), 2).flatten(-2),
        "instance": lambda t: F.instance_norm(t.unflatten(-1, (2, 64))).flatten(-2),
    }[norm]
    x = random_moments(5, 128 if norm in ("group", "instance") else 64, var=var)
    draws = function((x.mean + x.var.sqrt() * torch.randn(4000, *x.mean.shape).double()).flatten(0, 1))
    draws = draws.unflatten(0, (4000, 5))
    total, full = propagate(function, x, forms=("total", "")), propagate(function, x)
    assert (total.var / draws.var(0) - 1).abs().mean() < 0.05
    assert ((total.mean - draws.mean(0)) / draws.std(0)).abs().mean() < 0.03
    if var == 2.0:
        assert (full.var / draws.var(0) - 1).abs().mean() > 1


@pytest.mark.parametrize("layer", [nn.ReLU, nn.SiLU, nn.ELU, nn.SELU, nn.Hardtanh, nn.LeakyReLU])
def test_layers_in_place_change_their_input(layer: type[nn.Module]) -> None:
    x = random_moments(10)

    def function(t: Any) -> Any:
        layer(inplace=True)(t)
        return t

    assert_same(propagate(function, x), propagate(layer(), x))
