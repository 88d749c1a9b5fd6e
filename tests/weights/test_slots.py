"""Where a network keeps its parameters, and places where no other value could be put."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.weights.slots import find_slots, hidden_places


def places(net: nn.Module, name: str) -> list[tuple[str, Any]]:
    return [(slot.attribute, slot.key) for slot in find_slots(net)[name]]


def test_a_tied_weight_has_a_slot_in_every_module_that_holds_it() -> None:
    net = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    net[1].weight = net[0].weight
    slots = find_slots(net)
    assert [slot.module for slot in slots["0.weight"]] == [net[0], net[1]]
    assert "1.weight" not in slots
    assert slots["1.bias"][0].get() is net[1].bias


def test_lists_and_dicts_of_a_module_are_slots_too() -> None:
    """nn.LSTM hands its kernels the list `_flat_weights`."""
    net = nn.Sequential(nn.LSTM(2, 3))
    net[0].by_name = {"bias": net[0].bias_hh_l0}
    assert places(net, "0.weight_ih_l0") == [("_parameters", "weight_ih_l0"), ("_flat_weights", 0)]
    assert ("by_name", "bias") in places(net, "0.bias_hh_l0")


@pytest.mark.parametrize(
    "hide",
    [lambda w: (w,), lambda w: {w}, lambda w: [[w]], lambda w: w.data[1:], lambda w: lambda: w.detach()],
    ids=["tuple", "set", "list in a list", "view", "closure over itself"],
)
def test_places_that_no_value_can_be_put_into(hide: Any) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    assert hidden_places(net) == {}
    net[0].other = hide(net[0].weight)
    found = hidden_places(net)
    closure = callable(net[0].other)  # holds the parameter itself: watched when it is called
    assert found == ({} if closure else {id(net[0].weight): "0.other"})


class Graph(nn.Module):
    """Mixes its examples by a sparse matrix, which has no place in memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("neighbours", torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.neighbours, self.linear(x))


def test_sparse_tensors_and_hooks_that_make_weights_are_no_hidden_places() -> None:
    x = torch.randn(4, 3)
    graph = bf.bayesify(Graph(), bf.MonteCarloVI())
    assert not torch.equal(graph(x), graph(x))
    net = nn.Sequential(nn.Linear(3, 8), torch.nn.utils.spectral_norm(nn.Linear(8, 2)))
    model = bf.bayesify(net, bf.MonteCarloVI())
    assert not torch.equal(model(x), model(x))
