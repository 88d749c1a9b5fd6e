"""Tensors that a network keeps from a call: activations in attributes, buffers that it moves or replaces."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Kept = dict[str, Any]


def copy_of(net: nn.Module) -> Any:
    """A deep copy; activations that `net` keeps lose their graph, with which torch does not copy them."""
    kept = [value for store in _stores(net) for value in store.values() if isinstance(value, Tensor)]
    memo: dict[int, Any] = {id(value): value.detach().clone() for value in kept if not value.is_leaf}
    return copy.deepcopy(net, memo)


def remembered(net: nn.Module) -> Callable[[], None]:
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


class NothingBatched:
    """A context that takes activations of a vmapped call out of the network again; `found` names the first one."""

    def __init__(self, net: nn.Module) -> None:
        self.before = [(store, dict(store)) for store in _stores(net)]
        self.found = ""

    def __enter__(self) -> "NothingBatched":
        return self

    def __exit__(self, *exception: object) -> None:
        for store, old in self.before:
            for name in [name for name, value in store.items() if _is_batched(value)]:
                self.found = self.found or name
                if name in old:
                    store[name] = old[name]
                else:
                    del store[name]


def _stores(net: nn.Module) -> list[Kept]:
    return [store for module in net.modules() for store in (vars(module), module._buffers)]


def _is_batched(value: Any) -> bool:
    return isinstance(value, Tensor) and torch.func.debug_unwrap(value) is not value
