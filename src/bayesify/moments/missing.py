"""What to say when the moments pass meets an operation it has no rule for."""

import sys
from typing import Any

import torch
from torch import nn

from bayesify.execution import compiling


def no_rule(func: Any, forms: tuple[str, ...]) -> str:
    """Names the operation, the module it stands in, and how to register a rule in three lines."""
    name = name_of(func)
    if "full" in forms:
        return (
            f"full covariance propagation has no rule for {name!r}, used in {calling_module()}: it covers "
            f"linear and convolutional layers, activations, sums, pooling, batch norm, dropout, flatten and softmax. "
            f"Use covariance='outputs' or 'diagonal'"
        )
    return f"the moments pass has no rule for {name!r}, used in {calling_module()}. {_register(name)}"


def not_covered(func: Any, case: str) -> str:
    """As `no_rule`, for a case that the operation's rule leaves out."""
    name = name_of(func)
    return f"the moments pass has no rule for {name!r} with {case}, used in {calling_module()}. {_register(name)}"


def _register(name: str) -> str:
    return (
        f"Register one:\n"
        f"    @bf.moments.rule({name})\n"
        f"    def my_rule(x, *args):\n"
        f"        return bf.Moments(mean, var)   # from x.mean and x.var"
    )


_INSTEAD = {
    torch.Tensor.__setitem__: "use torch.where or torch.cat",
    torch.Tensor.copy_: "use the random value itself, or for statistics kept in a buffer a layer of torch's",
}


def no_place(func: Any) -> str:
    """The error of a random value written where no variance can be held."""
    instead = _INSTEAD.get(func, "leave out the underscore")
    return (
        f"{name_of(func)!r} in {calling_module()} writes a random value into a tensor that is not random, "
        f"which cannot hold a variance in compiled code or with full covariances: {instead}"
    )


def name_of(func: Any) -> str:
    """`torch.relu`, `F.gelu`, `torch.Tensor.view`: as a user would write it."""
    name = getattr(func, "__name__", str(func))
    for prefix, place in (("torch.Tensor", torch.Tensor), ("torch", torch), ("F", nn.functional)):
        if getattr(place, name, None) is func:
            return f"{prefix}.{name}"
    return getattr(func, "__qualname__", None) or name


def calling_module() -> str:
    """The innermost nn.Module on the call stack: where in the network an operation stands."""
    if compiling():
        return "compiled code (call the model once without compiling to see the module)"
    frame = sys._getframe()
    chain: list[nn.Module] = []
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and all(owner is not m for m in chain):
            chain.append(owner)
        frame = frame.f_back  # type: ignore[assignment]
    for root in reversed(chain):
        for path, module in root.named_modules():
            if module is chain[0] and path:
                return f"module {path.removeprefix('net.')!r} ({type(module).__name__})"
    return f"module {type(chain[0]).__name__}" if chain else "no module"
