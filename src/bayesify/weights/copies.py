"""Copies of a network, and of its buffers, which a call may move or replace."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.weights.calls import attributes_of


def copy_of(net: nn.Module) -> Any:
    """A deep copy; activations that `net` keeps lose their graph, with which torch does not copy them."""
    held = [value for attributes in attributes_of(net) for value in attributes.values()]
    activations = [value for value in held if isinstance(value, Tensor) and not value.is_leaf]
    memo: dict[int, Any] = {id(value): value.detach().clone() for value in activations}
    return copy.deepcopy(net, memo)


def buffers_of(net: nn.Module) -> Callable[[], None]:
    """A function that puts all buffers of `net` back as they are now, in value, in size and in place."""
    stores = [(module._buffers, dict(module._buffers)) for module in net.modules()]
    buffers = [(buffer, buffer.clone()) for _, old in stores for buffer in old.values() if buffer is not None]

    def put_back() -> None:
        for store, old in stores:
            store.update(old)
        with torch.no_grad():
            for buffer, value in buffers:
                (buffer if buffer.shape == value.shape else buffer.resize_(value.shape)).copy_(value)

    return put_back
