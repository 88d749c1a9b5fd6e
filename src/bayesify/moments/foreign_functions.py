"""Functions of a network that torch runs in its own way, given stand-ins: of TorchScript, or with their own backward.

TorchScript functions take tensors only: the moments pass runs the Python code they were made from. The forward of a
`torch.autograd.Function` runs without a graph. Its backward knows nothing of variances and is not called, so the graph
is that of the rules of the forward's operations, or the gradients of everything before would be lost without an error.
"""

import inspect
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.execution import compiling
from bayesify.moments.standin import StandIn, holds

_call: Any = internals.ScriptFunction and internals.ScriptFunction.__call__
_others: "weakref.WeakValueDictionary[int, CodeType]" = (
    weakref.WeakValueDictionary()
)  # no forwards of functions
_lock, _users = threading.Lock(), 0  # calls of networks, in any thread, that need it
if hasattr(os, "register_at_fork"):  # a child must not find it taken by a thread that it does not have
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


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


def with_graph(mean: Tensor) -> Any:
    """A context in which a rule records its graph, also inside the forward of such a function."""
    if compiling() or torch.is_grad_enabled() or mean.grad_fn is None:
        return nullcontext()
    frame = sys._getframe()
    while frame is not None:
        if _is_forward(frame.f_code):
            return torch.enable_grad()
        frame = frame.f_back  # type: ignore[assignment]
    return nullcontext()  # the network's own no_grad()


def _is_forward(code: CodeType) -> bool:
    """Is it the code of some forward? To look through all classes takes longer than a rule: it is done once for every
    code that calls rules."""
    if _others.get(id(code)) is code:  # code that dynamo made may have no hash
        return False
    if any(code is each for each in _forwards(torch.autograd.Function)):
        return True
    _others[id(code)] = code
    return False


def _forwards(cls: type[torch.autograd.Function]) -> Iterator[CodeType]:
    """The code of every forward. `apply` itself leaves no frame: newer versions of torch have it in C++."""
    for child in cls.__subclasses__():
        code = getattr(inspect.unwrap(child.forward), "__code__", None)
        if code is not None:
            yield code
        yield from _forwards(child)
