"""How the present code is being run: eagerly, compiled, inside torch.func, or recorded in a CUDA graph.

The answer belongs to the function that asks, not to the whole pass: where torch.compile gives a function up (a graph
break), it runs eagerly in the midst of compiled code.
"""

import inspect
from typing import Any

import torch

from bayesify import torch_internals as internals

#: Is this code being traced by torch.compile, which fuses by itself and can take no lock and no generator? torch's own
#: function, not one around it: that would be traced by itself, and say yes, where the function that asks is not.
compiling = torch.compiler.is_compiling


def inside_functorch() -> bool:
    """Are we inside torch.func (vmap, grad), which has no rules for multi-tensor kernels?"""
    return not compiling() and internals.peek_interpreter_stack() is not None


def exporting() -> bool:
    """Is a program for other runtimes being made, for batches of every size? Compiled code of torch 2.11 takes
    torch.compiler.is_exporting() for true always, but reads the flag itself."""
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def transformed() -> bool:
    """Compiled or inside torch.func: multi-tensor kernels and numbers read from tensors are of no use."""
    return compiling() or inside_functorch()


def capturing() -> bool:
    """Is the current stream recording a CUDA graph?"""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def can_read_values() -> bool:
    """May a check look into tensors? Not in compiled or vmapped code, nor while a CUDA graph is recorded."""
    return not (transformed() or capturing())


class Function(torch.autograd.Function):
    """A torch.autograd.Function with `setup_context`; torch reads the signature of `forward` in every call of `apply`,
    which takes longer than a small operation: here it is read once."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            vars(cls.forward)["__signature__"] = inspect.signature(cls.forward)


def applied(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply`, or where no graph is made its `forward` alone."""
    return function.apply(*inputs) if torch.is_grad_enabled() else function.forward(*inputs)
