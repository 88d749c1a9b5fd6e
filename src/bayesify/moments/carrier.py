"""Mean and variance carried through every operation of an unmodified network."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesify.moments.standin import METADATA, StandIn, replace


class Moments(NamedTuple):
    """Elementwise mean and variance of a random tensor (`var` is a variance, of the mean's shape)."""

    mean: Tensor
    var: Tensor


RULES: dict[Any, Callable[..., Any]] = {}


def rule(*operations: Any) -> Callable[[Callable], Callable]:
    """Register how `operations` act on moments.

    The function gets the operation's own arguments, with a `Moments` wherever a random tensor stood,
    and returns `Moments` (or a list or tuple of them).

    >>> @rule(torch.neg, torch.Tensor.neg)
    ... def negative(x):
    ...     return Moments(-x.mean, x.var)
    """

    def register(function: Callable) -> Callable:
        for operation in operations:
            RULES[operation] = function
        return function

    return register


class Carrier(StandIn):
    """Stands in for an activation or a weight; holds its moments."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments

    def metadata(self) -> Tensor:
        return self.moments.mean

    @classmethod
    def handle(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in METADATA:
            return func(*replace(args, Carrier, _mean), **replace(kwargs, Carrier, _mean))
        inplace = kwargs.get("inplace", False)
        function = RULES.get(func)
        if function is None:
            raise NotImplementedError(_no_rule(func))
        kwargs = {k: v for k, v in kwargs.items() if k != "inplace"}
        result = function(*replace(args, Carrier, _moments), **replace(kwargs, Carrier, _moments))
        if (inplace or func in INPLACE) and isinstance(args[0], Carrier):
            args[0].moments = result
            return args[0]
        return replace(result, Moments, Carrier)


#: operations whose result must be written back into their first argument
INPLACE: set[Any] = {torch.relu_, torch.Tensor.relu_, torch.Tensor.add_, torch.Tensor.__iadd__}


def _mean(carrier: Carrier) -> Tensor:
    return carrier.moments.mean


def _moments(carrier: Carrier) -> Moments:
    return carrier.moments


class CarrierMode(TorchFunctionMode):
    """Catches carriers inside tuples, where dynamo does not look for `__torch_function__`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _holds_carrier(args) or _holds_carrier(tuple(kwargs.values())):
            return Carrier.handle(func, tuple(args), kwargs)
        return func(*args, **kwargs)


def _holds_carrier(values: tuple[Any, ...]) -> bool:
    for value in values:
        if isinstance(value, Carrier):
            return True
        if isinstance(value, list | tuple) and any(isinstance(v, Carrier) for v in value):
            return True
    return False


def _no_rule(func: Any) -> str:
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", str(func))
    return (
        f"the moments pass has no rule for {name!r}, used in {_calling_module()}. Register one:\n"
        f"    @bf.moments.rule({name})\n"
        f"    def my_rule(x, *args):\n"
        f"        return bf.Moments(mean, var)   # from x.mean and x.var"
    )


def _calling_module() -> str:
    """The innermost nn.Module on the call stack: where in the network an operation stands."""
    frame = sys._getframe()
    chain: list[nn.Module] = []
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and owner not in chain:
            chain.append(owner)
        frame = frame.f_back  # type: ignore[assignment]
    for root in reversed(chain):
        for path, module in root.named_modules():
            if module is chain[0] and path:
                return f"module {path.removeprefix('net.')!r} ({type(module).__name__})"
    return f"module {type(chain[0]).__name__}" if chain else "no module"
