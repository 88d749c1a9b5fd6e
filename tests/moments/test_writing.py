"""Networks that write random values into tensors they made, change views in place, or ask whether x is a Tensor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from propagation import by_jacobian, propagate, random_moments
from torch import Tensor, nn

import bayesify as bf

INDEX = torch.tensor([1, 0, 1])


def filled_by_steps(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        out[:, t] = x[:, t].tanh()
    return 2 * out


def added_to_a_part(x: Tensor) -> Tensor:
    out = torch.ones(3, 6, dtype=x.dtype)
    out[:, :4] += x
    return out.sum(1)


def added_to_a_named_part(x: Tensor) -> Tensor:
    out = torch.ones(3, 6, dtype=x.dtype)
    part = out[:, :4]
    part += x
    return out.exp() + out.t()[0].unsqueeze(1)


def copied_into_a_view(x: Tensor) -> Tensor:
    out = torch.zeros(4, 3, dtype=x.dtype)
    out.t().copy_(x)
    return out.view(-1)[2:7].sin()


def copied_into_a_made_view(x: Tensor) -> Tensor:
    out = torch.ones(12, dtype=x.dtype)
    first = out[:3]
    out.view(3, 4).mul_(x)
    return first * torch.arange(3)


def collected(x: Tensor) -> Tensor:
    return x.new_zeros(2, 4).index_add_(0, INDEX, x).relu()


def scattered(x: Tensor) -> Tensor:
    places = INDEX[:, None].expand_as(x)
    return 3 + x.new_zeros(2, 4).scatter_add_(0, places, x)


def scaled_part(x: Tensor) -> Tensor:
    y = x.sin()
    y[:, 2:].mul_(2)
    y.view(-1)[::2].add_(1)
    return y.exp()


def scaled_chunk(x: Tensor) -> Tensor:
    y = x.sin()
    _, second = y.chunk(2, 1)
    second.transpose(0, 1)[0] = 5.0
    return y + second.sum()


def written_and_returned(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[1:] = x[1:]
    return out


CASES = [
    filled_by_steps,
    added_to_a_part,
    added_to_a_named_part,
    copied_into_a_view,
    copied_into_a_made_view,
    collected,
    scattered,
    scaled_part,
    scaled_chunk,
    written_and_returned,
]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_the_values_are_random_from_then_on(function: Callable[[Tensor], Tensor]) -> None:
    """First order, by the Jacobian; where an entry enters twice, `second.sum()`, to it the mean alone."""
    torch.manual_seed(0)
    x = random_moments(3, 4, var=1e-4)
    result = propagate(function, x)
    assert isinstance(result, bf.Moments)
    mean = function(x.mean.clone())
    torch.testing.assert_close(result.mean, mean)
    if function not in (scaled_chunk, added_to_a_named_part):
        jacobian = torch.autograd.functional.jacobian(lambda m: function(m.clone()), x.mean)
        var = (jacobian.reshape(*mean.shape, -1).square() * x.var.flatten()).sum(-1)
        torch.testing.assert_close(result.var, var)


def test_gradients_reach_what_was_written() -> None:
    x = random_moments(3, 4)
    mean, var = (t.requires_grad_() for t in x)
    result = propagate(filled_by_steps, bf.Moments(mean, var))
    (result.mean.sum() + result.var.sum()).backward()
    assert mean.grad is not None and var.grad is not None
    assert mean.grad.all() and var.grad.all()


class RunningMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("running", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        self.running.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return h - self.running


def test_a_buffer_keeps_the_mean() -> None:
    net = RunningMean()
    model = bf.bayesify(net, bf.DensityPropagation(where=bf.where.all, init_std=1e-6), num_data=10)
    x = torch.randn(5, 4)
    model(x)
    torch.testing.assert_close(net.running, 0.1 * net.layer(x).mean(0))
    assert type(net.running) is Tensor


def test_a_compiled_network_refuses_to_write_into_a_plain_tensor() -> None:
    net = nn.Sequential(nn.Linear(4, 4), Steps())
    model = bf.bayesify(net, bf.DensityPropagation(), num_data=10)
    model(torch.randn(3, 4))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="that is not random|as_proxy"):  # torch 2.15 refuses by itself
        torch.compile(model, backend="eager", fullgraph=True)(torch.randn(3, 4))


class Steps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return filled_by_steps(x)


def test_a_random_activation_is_a_tensor() -> None:
    def nested(x: Any) -> Any:
        assert isinstance(x, Tensor) and torch.is_tensor(x)
        assert not isinstance(x, nn.Parameter)
        assert x.requires_grad is False and x.layout is torch.strided and x.is_cuda is False
        assert "Carrier" in repr(x)
        return (2 - x) + x.T.sum()

    x = random_moments(3, 4)
    torch.testing.assert_close(propagate(nested, x).mean, 2 - x.mean + x.mean.sum())


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_the_extreme_of_what_goes_to_one_place(reduce: str) -> None:
    x, base = random_moments(3, 4), torch.full((2, 4), 0.3, dtype=torch.float64)
    places = INDEX[:, None].expand(3, 4)
    result = propagate(lambda x: base.scatter_reduce(0, places, x, reduce, include_self=True), x)
    pick = torch.amax if reduce == "amax" else torch.amin
    for place in range(2):
        rows = place == INDEX
        means = torch.cat([x.mean[rows], base[:1]])
        variances = torch.cat([x.var[rows], torch.zeros(1, 4, dtype=torch.float64)])
        torch.testing.assert_close(result.mean[place], pick(means, 0))
        expected = variances.gather(0, (means == pick(means, 0)).int().argmax(0, keepdim=True))[0]
        torch.testing.assert_close(result.var[place], expected)


def test_einsum_of_one_tensor_moves_its_entries() -> None:
    x = random_moments(2, 3, 4)
    result = propagate(lambda x: torch.einsum("abc->cba", x), x)
    torch.testing.assert_close(result, bf.Moments(x.mean.permute(2, 1, 0), x.var.permute(2, 1, 0)))


@dataclass(frozen=True)
class Output:
    logits: Any
    hidden: list[Any]


class Ring:
    """An object that holds itself, a class and a random value."""

    def __init__(self, value: Any) -> None:
        self.value, self.kind, self.others = value, [Output], [self]


def test_moments_in_objects_that_hold_each_other() -> None:
    x = random_moments(3)
    ring, again = propagate(lambda t: [r := Ring(2 * t), r], x)
    assert ring is again and ring.others[0] is ring and ring.kind == [Output]
    torch.testing.assert_close(ring.value.var, 4 * x.var)


def test_moments_in_the_fields_of_a_dataclass() -> None:
    x = random_moments(3, 4)
    result = propagate(lambda x: Output(2 * x, [x, "a name"]), x)
    torch.testing.assert_close(result.logits, bf.Moments(2 * x.mean, 4 * x.var))
    torch.testing.assert_close(result.hidden[0], x)
    assert result.hidden[1] == "a name"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > 0, x, 0.1 * x),
        lambda x: x[torch.arange(3), x.argmax(1)],
        lambda x: x.gather(1, torch.argsort(x, 1)),
        lambda x: nn.functional.mse_loss(x, torch.zeros_like(x)),
        lambda x: torch.as_tensor(x).tanh() if x.mean() < 100 else x,
    ],
)
def test_comparisons_and_indices_are_those_of_the_means(function: Callable[[Tensor], Tensor]) -> None:
    x = random_moments(3, 4, var=1e-6)
    result, expected = propagate(function, x), by_jacobian(function, x)
    torch.testing.assert_close(tuple(result), tuple(expected))
