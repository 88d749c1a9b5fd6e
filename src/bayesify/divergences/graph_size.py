"""How much autograd keeps for backward."""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from bayesify import torch_internals as internals


class _Saved:
    """A tensor that autograd holds; its elements count until the graph lets it go."""

    def __init__(self, tensor: Tensor, tally: "_Tally") -> None:
        self.tensor, self.tally = tensor, tally
        tally.count(tensor, 1)

    def __del__(self) -> None:
        self.tally.count(self.tensor, -1)


class _Tally:
    """Elements of distinct storages held now, and the most held at once."""

    def __init__(self) -> None:
        self.holders: Counter[int] = Counter()
        self.now = self.peak = 0

    def count(self, tensor: Tensor, change: int) -> None:
        storage = tensor.untyped_storage()
        before = self.holders[storage.data_ptr()]
        self.holders[storage.data_ptr()] += change
        if not before or before + change == 0:  # the first holder, or the last one
            self.now += change * (storage.nbytes() // tensor.element_size())
            self.peak = max(self.peak, self.now)


def graph_size(fn: Callable[[], object]) -> int:
    """Elements that autograd stores for backward while `fn` runs: the most held at one time.

    Each storage counts once, however many operations keep it; a view counts as the whole storage it keeps alive.
    Parameters (leaves that require gradients, and views of them) are there anyway and do not count. When `fn` runs
    backward itself, what that frees is no longer counted.

    >>> x = torch.ones(3, requires_grad=True)
    >>> graph_size(lambda: x.exp().sum())
    3
    """
    tally = _Tally()

    def pack(tensor: Tensor) -> Tensor | _Saved:
        base = internals.base_of(tensor)
        whole = tensor if base is None else base
        return tensor if whole.is_leaf and whole.requires_grad else _Saved(tensor, tally)

    def unpack(saved: Tensor | _Saved) -> Tensor:
        return saved.tensor if isinstance(saved, _Saved) else saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = fn()  # noqa: F841  the graph hangs on it
    return tally.peak
