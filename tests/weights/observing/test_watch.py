"""Watching one call: which parameters it uses, in what order and how often."""

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from bayesify.weights.observing.watch import Watch, address, inside_checkpoint, layer_of, memory


def test_uses_are_listed_in_the_order_of_execution_once_for_each() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    with Watch(dict(net.named_parameters())) as watch:
        net(net[:2](torch.randn(2, 3)))
    first, second = ["0.weight", "0.bias"], ["2.weight", "2.bias"]
    assert watch.uses == [*first, *first, *second]
    assert watch.counts == {"0.weight": 2, "0.bias": 2, "2.weight": 1, "2.bias": 1}


def test_reading_a_shape_is_no_use() -> None:
    weight = nn.Parameter(torch.randn(2, 3))
    with Watch({"w": weight}) as watch:
        assert weight.shape == (2, 3) and weight.size(0) == 2 and weight.is_floating_point()
    assert watch.uses == []


def test_a_use_of_what_was_replaced_is_a_stray_also_through_a_view() -> None:
    weight = nn.Parameter(torch.randn(4, 3))
    view = weight.data[1:]
    with Watch({}) as watch:
        watch.replaced = [(memory(weight), "w")]
        view.sum()
        torch.randn(3).sum()
    assert watch.strays == ["w"]


def test_addresses() -> None:
    weight = torch.randn(4, 3)
    assert memory(weight) == range(weight.data_ptr(), weight.data_ptr() + 48)
    assert address(weight[2:]) in memory(weight)
    assert (
        address(torch.eye(3).to_sparse())
        == address("no tensor")
        == address(torch.empty(2, device="meta"))
        == 0
    )


def test_uses_inside_a_checkpoint_are_noted() -> None:
    weight = nn.Parameter(torch.randn(3))
    seen: list[bool] = []

    def block(x: Tensor) -> Tensor:
        seen.append(inside_checkpoint())
        return x * weight

    with Watch({"w": weight}) as watch:
        torch.utils.checkpoint.checkpoint(block, torch.randn(3), use_reentrant=False)
        block(torch.randn(3))
    assert seen == [True, False]
    assert (watch.checkpointed, watch.uses) == (["w"], ["w", "w"])


def test_the_layer_of_a_parameter() -> None:
    assert layer_of("conv.weight") == "conv"
    assert layer_of("block.conv.parametrizations.weight.original0") == "block.conv"
    assert layer_of("parametrizations.weight.original") == layer_of("weight") == ""
