"""One call of a network with other values: what goes in, what comes back, and what the network may not keep of it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.weights import Call, as_call, call_with, find_slots


class Cached(nn.Module):
    """As LeViT does with its attention biases in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4))
        self.cache: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.counts["calls"] = self.counts.get("calls", 0) + 1
        if self.training:
            return x + self.table.flip(0)
        if "table" not in self.cache:
            self.cache["table"] = self.table.flip(0)
        return x + self.cache["table"]


@pytest.mark.parametrize("sampling", ["draw", "local"])
def test_draws_differ_and_nothing_stays_in_the_network(sampling: str) -> None:
    net = Cached().eval()
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.all, sampling=sampling), num_data=10).eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert not torch.equal(model(x), model(x))
        assert net.cache == {} and net.counts["calls"] >= 2
        assert torch.equal(net(x), x + net.table.flip(0))


def test_moments_do_not_stay_either() -> None:
    net = Cached().eval()
    model = bf.bayesify(net, bf.DensityPropagation(where=bf.where.all), num_data=10).eval()
    x = torch.randn(2, 4)
    first, second = model(x), model(x)
    assert torch.equal(first.var, second.var) and (first.var > 0).all()
    assert torch.equal(model.mean_net()(x), x + net.table.flip(0))


def test_what_a_network_keeps_in_training_stays() -> None:
    """A term of the loss, say, that is read after the call."""

    class Kept(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.terms: dict[str, Any] = {}

        def forward(self, x: Tensor) -> Tensor:
            self.terms["norm"] = self.weight.norm()
            return super().forward(x)

    net = Kept()
    model = bf.bayesify(net, bf.MonteCarloVI(), num_data=10).train()
    model(torch.randn(2, 4))
    assert net.terms["norm"].requires_grad


@pytest.mark.parametrize(
    ("x", "kwargs", "expected"),
    [
        (None, {"mask": 1}, ((), {"mask": 1})),
        (3.0, {}, ((3.0,), {})),
        (("a", 2), {"mask": 1}, (("a", 2), {"mask": 1})),
        (["a", 2], {}, (("a", 2), {})),
        ({"a": 1, "mask": 0}, {"mask": 1}, ((), {"a": 1, "mask": 1})),
    ],
)
def test_what_an_input_means(x: Any, kwargs: dict[str, Any], expected: Any) -> None:
    """A tuple is positional, a dict keywords, which those of the call override."""
    assert as_call(x, kwargs)[:2] == expected


def test_moments_are_one_input_though_a_tuple() -> None:
    x = bf.Moments(torch.ones(2), torch.ones(2))
    assert as_call(x).args == (x,)


def test_values_are_in_the_slots_for_the_call_only() -> None:
    net = nn.Linear(3, 2)
    weight, values = net.weight, {"weight": torch.zeros(2, 3), "bias": torch.ones(2)}
    output = call_with(
        net, find_slots(net), lambda names: {n: values[n] for n in names}, Call((torch.randn(4, 3),), {})
    )
    assert torch.equal(output, torch.ones(4, 2))
    assert net.weight is weight


def test_an_error_inside_the_network_leaves_the_parameters_in_place() -> None:
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    model = bf.bayesify(net, bf.MonteCarloVI(), num_data=50)
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 99))
    assert all(isinstance(p, nn.Parameter) for m in net.modules() for p in m._parameters.values())
