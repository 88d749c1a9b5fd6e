"""Functions with a backward of their own (`torch.autograd.Function`) that are given carriers.

torch runs their forward without a graph. Their backward knows nothing of variances and is not called, so the graph is
that of the rules of the forward's operations, or the gradients of everything before would be lost without an error.
"""

import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def with_graph(mean: Tensor) -> Any:
    """A context in which a rule records its graph, also inside the forward of such a function."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or mean.grad_fn is None:
        return nullcontext()
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _APPLY:
            return torch.enable_grad()
        frame = frame.f_back  # type: ignore[assignment]
    return nullcontext()  # the network's own no_grad()
