"""TorchScript functions of a network, which take tensors only: the moments pass runs their Python code."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bayesify import torch_internals as internals
from bayesify.moments.standin import StandIn, holds

_call: Any = internals.ScriptFunction and internals.ScriptFunction.__call__
_lock, _users = threading.Lock(), 0  # calls of networks, in any thread, that need it


def _call_or_inline(function: Any, *args: Any, **kwargs: Any) -> Any:
    python = getattr(function, "_torchdynamo_inline", None)  # torch keeps it, for dynamo
    if python is not None and (holds(args, StandIn) or holds(kwargs, StandIn)):
        return python(*args, **kwargs)
    return _call(function, *args, **kwargs)


@contextmanager
def scripts_inlined() -> Iterator[None]:
    """Until then a call of a TorchScript function with a stand-in runs the function it was made from."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _users
    with _lock:
        _users += change
        if internals.ScriptFunction:
            internals.ScriptFunction.__call__ = _call_or_inline if _users else _call
