"""Convolutions as derivatives of their opposites: values and derivatives are those of the convolution."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayesify  # noqa: F401
from bayesify import torch_internals as internals
from bayesify.moments.opposite import linear_map

CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": (F.conv1d, (2, 3, 9), (4, 3, 3), {"padding": 1}),
    "2d": (F.conv2d, (2, 3, 8, 7), (4, 3, 3, 2), {}),
    "stride that leaves a rest": (F.conv2d, (2, 3, 8, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "dilation and groups": (F.conv2d, (2, 4, 9, 9), (6, 2, 3, 3), {"stride": 3, "dilation": 2, "groups": 2}),
    "3d": (F.conv3d, (2, 2, 5, 6, 7), (3, 2, 2, 3, 1), {"stride": (1, 2, 3), "padding": (1, 0, 0)}),
    "padding by name": (F.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), {"padding": "same"}),
    "transposed": (F.conv_transpose2d, (2, 3, 6, 6), (3, 4, 3, 3), {"stride": 2}),
    "without a batch": (F.conv2d, (3, 6, 6), (4, 3, 3, 3), {}),
}


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_convolution_to_its_second_derivatives(name: str, bias: bool) -> None:
    func, x_shape, w_shape, named = CASES[name]
    internals.let_derivatives_be_traced()
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(x_shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(w_shape, dtype=torch.float64, requires_grad=True)
    outputs = w_shape[1] if func is F.conv_transpose2d else w_shape[0]
    b = torch.randn(outputs, dtype=torch.float64) if bias else None
    factor = torch.randn_like(func(x, w, b, **named))

    def both(operation: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        inside = x * 1.0
        y = operation(inside, w, b, **named)
        (delta,) = torch.autograd.grad(y, inside, factor, create_graph=True)
        return y, (delta * delta * x).sum()

    def opposite(*args: Any, **kwargs: Any) -> Tensor:
        return linear_map(func, *args, **kwargs)

    wanted = both(func, x, w)
    found = torch.compile(both, backend="aot_eager", fullgraph=True, dynamic=False)(opposite, x, w)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(
        torch.autograd.grad(found[1], (x, w)), torch.autograd.grad(wanted[1], (x, w)), strict=True
    ):
        torch.testing.assert_close(one, other)
