"""Variances in bfloat16 (`half_variance`): how far off they are."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import propagate, random_moments
from torch import nn

import bayesify as bf
from bayesify.moments import carrier, registry
from bayesify.nets import make

HALF = ("exact", "total", "half", "")
FULL = ("exact", "total", "")
ROUNDING = 2**-9  # of one number in bfloat16


def float_moments(*shape: int) -> bf.Moments:
    return bf.Moments(*(t.float() for t in random_moments(*shape)))


OPERATIONS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "linear": (F.linear, [(64, 100), (20, 100), (20,)]),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [(4, 6, 8, 8), (5, 6, 3, 3), (5,)]),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), [(4, 6, 8, 8), (4, 3, 3, 3)]),
    "matmul": (torch.matmul, [(2, 8, 16), (2, 16, 8)]),
    "attention": (F.scaled_dot_product_attention, [(2, 5, 8), (2, 7, 8), (2, 7, 8)]),
    "softmax times values": (lambda s, v: torch.softmax(s, -1) @ v, [(4, 6), (6, 3)]),
    "layer norm": (lambda x: F.layer_norm(x, (16,)), [(4, 16)]),
    "gelu": (F.gelu, [(50,)]),
    "relu": (torch.relu, [(50,)]),
    "relu in place": (lambda x: F.relu(x, inplace=True), [(50,)]),
    "sum": (lambda x, y: x + y, [(50,), (50,)]),
    "with itself": (lambda x: x * x + (x + x) - x / 3, [(50,)]),
    "less itself": (lambda x: (x - x) + (x * 1.5), [(50,)]),
    "joined": (lambda x, y: torch.cat((x, y), 1).flatten(), [(5, 2), (5, 3)]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_rules_with_variances_in_bfloat16(name: str) -> None:
    """Beside the variances given, factors, products and sums are rounded: 1 % at most. Means keep their precision."""
    torch.manual_seed(0)
    function, shapes = OPERATIONS[name]
    values = [float_moments(*shape) for shape in shapes]
    half = propagate(function, *values, forms=HALF)
    exact = propagate(function, *(bf.Moments(m.mean, m.var.bfloat16().float()) for m in values), forms=FULL)
    assert half.mean.dtype == half.var.dtype == torch.float32
    torch.testing.assert_close(half.mean, exact.mean)
    assert ((half.var / exact.var - 1).abs() < 5 * ROUNDING).all()


def test_a_rule_of_a_user_gets_variances_in_the_precision_of_the_means() -> None:
    seen = []

    def twice(x: Any) -> Any:
        return 2 * x

    @bf.moments.rule(twice)
    def rule(x: bf.Moments) -> bf.Moments:
        seen.append(x.var.dtype)
        return bf.Moments(2 * x.mean, 4 * x.var)

    try:
        x = carrier.Carrier(float_moments(3), HALF)
        assert x.moments.var.dtype == torch.bfloat16
        assert carrier.Carrier.handle(twice, (x,), {}).moments.var.dtype == torch.bfloat16
        assert seen == [torch.float32]
    finally:
        del registry.RULES[twice]


def test_double_precision_stays() -> None:
    assert propagate(F.relu, random_moments(3), forms=HALF).var.dtype == torch.float64
    assert carrier.Carrier(random_moments(3), HALF).moments.var.dtype == torch.float64


def test_one_variance_per_row_stays_one() -> None:
    shared = bf.Moments(torch.randn(4, 3), torch.rand(4, 1).expand(4, 3))
    assert carrier.Carrier(shared, HALF).moments.var.stride() == (1, 0)


def trained(
    net: nn.Module, x: torch.Tensor, y: torch.Tensor, **options: Any
) -> tuple[bf.Moments, torch.Tensor]:
    """Output and gradient of all parameters."""
    model = bf.bayesify(copy.deepcopy(net), bf.DensityPropagation(**options), num_data=1000)
    torch.manual_seed(1)  # the signs of the probe
    model(x, target=y).total.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    with torch.no_grad():
        return model.eval()(x), gradient


@pytest.mark.parametrize("covariance", ["outputs", "diagonal"])
@pytest.mark.parametrize("variance", ["weight", "row"])
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny"])
def test_networks_have_nearly_the_same_variance(name: str, variance: str, covariance: str) -> None:
    """To a hundredth; where derivatives are halves too, to three."""
    slack = 0.03 if covariance == "outputs" else 0.01
    torch.manual_seed(0)
    net = make(name, num_outputs=10, input_shape=(3, 16, 16))
    x, y = torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
    (exact, slope), (half, half_slope) = (
        trained(net, x, y, variance=variance, covariance=covariance, half_variance=half)
        for half in (False, True)
    )
    assert ((half.var / exact.var - 1).abs() < slack).all()
    assert (half.mean - exact.mean).norm() < 0.001 * exact.mean.norm()
    assert (half_slope - slope).norm() < slack * slope.norm()


def test_where_variances_are_halved() -> None:
    """By default on a GPU alone: numbers on a CPU are exact."""
    held = float_moments(3)
    for half, dtype in ((False, torch.float32), ("auto", torch.float32), (True, torch.bfloat16)):
        forms = bf.DensityPropagation(half_variance=half).forms
        assert carrier.Carrier(held, forms).moments.var.dtype == dtype
    with pytest.raises(ValueError, match="half_variance='yes' must be \"auto\", True or False"):
        bf.DensityPropagation(half_variance="yes")
