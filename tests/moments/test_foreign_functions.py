"""Networks with a `torch.autograd.Function` of their own, as memory-saving activations are written."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


class SwishWithSetup(Swish):
    @staticmethod
    def forward(x: Any) -> Any:  # type: ignore[override]
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)


class Decorated(Swish):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)


class Net(nn.Module):
    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(4, 5), nn.Linear(5, 3), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x)))


def gradients(activation: Any) -> tuple[bf.Moments, list[Tensor | None]]:
    torch.manual_seed(0)
    model, x = bf.bayesify(Net(activation), bf.DensityPropagation(where=bf.where.all)), torch.randn(6, 4)
    result = model(x)
    (result.mean.square().sum() + result.var.sum()).backward()
    return result, [p.grad for p in model.parameters()]


@pytest.mark.parametrize("function", [Swish, SwishWithSetup, Decorated])
def test_gradients_go_through_a_function_with_a_backward_of_its_own(function: Any) -> None:
    result, mine = gradients(function.apply)
    expected, plain = gradients(lambda x: x * torch.sigmoid(x))
    torch.testing.assert_close(result.var, expected.var)
    assert all(g is not None for g in mine)
    torch.testing.assert_close(mine, plain)


def test_what_the_network_computes_without_gradients_stays_so() -> None:
    def gate(x: Any) -> Any:
        with torch.no_grad():
            return x * torch.sigmoid(x)

    _, found = gradients(gate)
    assert sum(g is None for g in found) == 4  # first.weight and first.bias: centre and width
