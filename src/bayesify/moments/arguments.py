"""The arguments of torch's operations as a rule gets them: random operands in their places."""

from typing import Any

from bayesify import torch_internals as internals
from bayesify.moments.standin import StandIn, holds

ORDER: dict[Any, tuple[str, ...]] = {}  # names of the positional arguments of torch's own functions
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}  # torch takes these too


def renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords by torch's own names."""
    return {NUMPY_NAMES.get(name, name): value for name, value in kwargs.items()}


def in_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Random operands given by name, torch.baddbmm(b, batch1=x, batch2=y), in their places: rules have names of their
    own for them."""
    if not kwargs or not holds(kwargs, StandIn):
        return args, kwargs
    kwargs = {"self" if name == "input" else name: value for name, value in kwargs.items()}
    for name in ORDER.get(func, ())[len(args) :]:
        if name not in kwargs:
            break
        args = (*args, kwargs.pop(name))
    return args, {"input" if name == "self" else name: value for name, value in kwargs.items()}


def learn_order(operation: Any) -> None:
    """Ask torch for it once, because compiled code cannot."""
    schemas = internals.operator_schemas(f"aten::{getattr(operation, '__name__', '')}")
    if schemas:
        ORDER[operation] = tuple(a.name for a in schemas[0].arguments if not a.kwarg_only)
