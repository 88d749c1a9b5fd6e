"""Watch one call of a network: which parameters it uses, in what order and how often."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch.utils.checkpoint
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesify.weights.observing.outside_references import flat


class Watch(TorchFunctionMode):
    """Records every operation that takes one of `tracked` as an argument.

    Reading a shape or a dtype is not a use; an operation that returns a tensor is. `uses` lists the
    names in execution order, a name once per use. `strays` lists uses of what should have been replaced.
    """

    def __init__(self, tracked: Mapping[str, Tensor], boundary: str = "") -> None:
        super().__init__()
        self.boundary = boundary  # the file of the code that calls the network: looking further up is in vain
        self.names = {id(tensor): name for name, tensor in tracked.items()}
        # where parameters lie in memory that a random value replaces
        self.replaced: list[tuple[range, str]] = []
        self.uses: list[str] = []
        self.strays: list[str] = []
        self.checkpointed: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        values = flat((*args, *kwargs.values()))
        used = [self.names[id(value)] for value in values if id(value) in self.names]
        strays = [name for value in values for place, name in self.replaced if address(value) in place]
        if (used or strays) and any(isinstance(r, Tensor) for r in flat((result,))):
            self.uses += used
            self.strays += strays
            if used and inside_checkpoint(until=self.boundary):
                self.checkpointed += used
        return result

    @property
    def counts(self) -> Counter[str]:
        """How often each name was used."""
        return Counter(self.uses)


def address(value: Any) -> int:
    """Where a tensor's numbers begin; 0 for what has no place of its own (sparse, vmapped, meta; no tensor at all)."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return 0
    try:
        return value.data_ptr()
    except RuntimeError:  # a wrapper around other tensors, such as vmap's
        return 0


def memory(parameter: Tensor) -> range:
    """The addresses of a parameter's numbers: views of it, and `.data`, lie inside."""
    start = address(parameter)
    return range(start, start + parameter.numel() * parameter.element_size()) if start else range(0)


def inside_checkpoint(until: str = "") -> bool:
    """Is the caller running inside `torch.utils.checkpoint` (either kind), up to the first frame of file `until`?"""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != until:
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def layer_of(name: str) -> str:
    """The layer a parameter belongs to: `conv` for `conv.weight` and `conv.parametrizations.weight.original`."""
    if ".parametrizations." in name:
        return name.split(".parametrizations.")[0]
    if name.startswith("parametrizations."):
        return ""
    return name.rpartition(".")[0]
