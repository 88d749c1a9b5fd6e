"""Computing again in backward what is cheap to compute, instead of keeping it. Compiled code does this by itself."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import Function, inside_functorch, transformed


def plain() -> bool:
    """Is nothing to be saved by recomputing: no graph, or code that is compiled or inside torch.func?"""
    return not torch.is_grad_enabled() or transformed()


def forgetting(*pairs: tuple[Tensor, Callable[[], Tensor]]) -> Any:
    """A context in which autograd does not keep the first of each pair, but calls the second in backward.

    A tensor is known by its address and its layout: a linear layer saves the transpose of its weight, which has the
    same address and, where it is square, the same shape.
    """
    if plain():
        return nullcontext()
    again = {tensor.data_ptr(): (_layout(tensor), function) for tensor, function in pairs}

    def pack(tensor: Tensor) -> Any:
        layout, function = again.get(tensor.data_ptr(), (None, None))
        if layout == _layout(tensor):
            return function
        if function is not None and tensor.dim() == 2 and layout == _layout(tensor.t()):
            return lambda: function().t()
        return tensor

    def unpack(saved: Any) -> Tensor:
        return saved if isinstance(saved, Tensor) else saved()

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


class OfInputs(Function):
    """Base of functions whose backward needs the inputs alone."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)


def recomputed(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """function(*inputs), of which autograd keeps the inputs alone."""
    return function(*inputs) if plain() else _Recomputed.apply(function, *inputs)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        device = inputs[0].device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        inputs, needed = list(ctx.saved_tensors), ctx.needs_input_grad[1:]
        again = torch.is_grad_enabled()  # what comes out will be differentiated itself
        if not again and not inside_functorch():
            inputs = [t.detach().requires_grad_(n) for t, n in zip(inputs, needed, strict=True)]
        wanted = [t for t, n in zip(inputs, needed, strict=True) if n]
        used = [grad is not None for grad in grads]  # a sweep asks for the mean alone
        grads = tuple(grad for grad in grads if grad is not None)
        if not grads:
            return (None,) * (1 + len(needed))

        def function(*values: Tensor) -> tuple[Tensor, ...]:
            given = iter(values)
            found = ctx.function(*(next(given) if n else t for t, n in zip(inputs, needed, strict=True)))
            return tuple(one for one, is_used in zip(found, used, strict=True) if is_used)

        device, dtype, enabled = ctx.autocast  # backward runs outside the caller's autocast
        with torch.enable_grad(), torch.autocast(device, dtype, enabled):
            if not again and inside_functorch():  # which knows no requires_grad_
                found = iter(torch.func.vjp(function, *wanted)[1](grads))
            else:
                outputs = function(*wanted)
                found = iter(
                    torch.autograd.grad(outputs, wanted, grads, allow_unused=True, create_graph=again)
                )
        return None, *(next(found) if n else None for n in needed)
