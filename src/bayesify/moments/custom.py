"""Functions with a backward of their own (`torch.autograd.Function`) that are given carriers.

torch runs their forward without a graph. Their backward knows nothing of variances and is not called, so the graph is
that of the rules of the forward's operations, or the gradients of everything before would be lost without an error.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import compiling


def with_graph(mean: Tensor) -> Any:
    """A context in which a rule records its graph, also inside the forward of such a function."""
    if compiling() or torch.is_grad_enabled() or mean.grad_fn is None:
        return nullcontext()
    forwards = set(_forwards(torch.autograd.Function))
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code in forwards:
            return torch.enable_grad()
        frame = frame.f_back  # type: ignore[assignment]
    return nullcontext()  # the network's own no_grad()


def _forwards(cls: type[torch.autograd.Function]) -> Iterator[CodeType]:
    """The code of every forward. `apply` itself leaves no frame: newer versions of torch have it in C++."""
    for child in cls.__subclasses__():
        code = getattr(inspect.unwrap(child.forward), "__code__", None)
        if code is not None:
            yield code
        yield from _forwards(child)
