"""TorchScript functions of a network, which take tensors only: the moments pass runs their Python code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from bayesify.moments.standin import StandIn, holds

_call = torch.jit.ScriptFunction.__call__


def _call_or_inline(function: Any, *args: Any, **kwargs: Any) -> Any:
    python = getattr(function, "_torchdynamo_inline", None)  # torch keeps it, for dynamo
    if python is not None and (holds(args, StandIn) or holds(kwargs, StandIn)):
        return python(*args, **kwargs)
    return _call(function, *args, **kwargs)


@contextmanager
def scripts_inlined() -> Iterator[None]:
    """Until then a call of a TorchScript function with a stand-in runs the function it was made from."""
    torch.jit.ScriptFunction.__call__ = _call_or_inline  # type: ignore
    try:
        yield
    finally:
        torch.jit.ScriptFunction.__call__ = _call  # type: ignore[method-assign]
