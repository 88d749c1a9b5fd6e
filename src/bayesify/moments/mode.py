"""The mode under which a network runs in the moments pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesify import torch_internals as internals
from bayesify.execution import compiling
from bayesify.moments.carrier import Carrier, carried, first_carrier, unwrap, writes_into_first
from bayesify.moments.standin import replace
from bayesify.moments.values import Gaussian, Moments, certain
from bayesify.torch_internals import pytree


class CarrierMode(TorchFunctionMode):
    """Catches carriers inside tuples, where dynamo does not look for `__torch_function__`, and random values that a
    network writes into a plain tensor (`out[:, t] = h`): from then on a carrier stands for that tensor. Compiled code
    refuses such writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[Tensor, Carrier]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target: Any = args[0] if args else None
        args, kwargs = tuple(args), kwargs or {}
        if self.written:
            args, kwargs = self.standing_for(args), self.standing_for(kwargs)
        carrier = first_carrier((*args, *kwargs.values()))
        if carrier is None:
            return func(*args, **kwargs)
        plain = isinstance(target, Tensor) and not isinstance(target, Carrier)
        can = "full" not in carrier.forms and not compiling()
        if plain and can and writes_into_first(func, args, kwargs):
            known = isinstance(args[0], Carrier)
            holder = args[0] if known else carried(certain(args[0].clone()), carrier.forms, carrier.tape)
            Carrier.handle(func, (holder, *args[1:]), kwargs)
            self._keep(target, holder)
            return target
        return Carrier.handle(func, args, kwargs)

    def standing_for(self, value: Any) -> Any:
        """`value` with the carriers of written tensors, and of views of them, in their place."""
        return replace(value, Tensor, self._standing_for_one)

    def _standing_for_one(self, tensor: Tensor) -> Any:
        if isinstance(tensor, Carrier):
            return tensor
        base = internals.base_of(tensor)
        for written, holder in self.written:
            if written is tensor:
                return holder
            if written is base:
                part = Moments(*(_part(t, tensor, base) for t in _dense(holder)))
                return carried(part, holder.forms, holder.tape)
        return tensor

    def _keep(self, tensor: Tensor, holder: Carrier) -> None:
        base = internals.base_of(tensor)
        if base is not None:
            whole = self._standing_for_one(base)
            whole = whole if isinstance(whole, Carrier) else carried(certain(base), holder.forms, holder.tape)
            moments = Moments(*(t.clone() for t in _dense(whole)))
            for own, new in zip(moments, holder.unpacked(), strict=True):
                _part(own, tensor, base).copy_(new)
            tensor, holder = base, carried(moments, holder.forms, holder.tape)
        self.written = [(t, h) for t, h in self.written if t is not tensor] + [(tensor, holder)]

    def leave(self) -> None:
        """Written tensors that outlive the pass, buffers, get the means."""
        for tensor, holder in self.written:
            tensor.detach().copy_(holder.metadata().detach())


def _dense(holder: Carrier) -> Moments:
    """Mean and variance, each with the strides of a tensor of its own."""
    mean, var = holder.unpacked()
    return Moments(mean, torch.empty_like(mean).copy_(var))


def _part(whole: Tensor, view: Tensor, base: Tensor) -> Tensor:
    """Of `whole`, laid out as `base`, what `view` is of `base`."""
    return whole.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())


def of_moments(function: Callable[[Any], Any], value: Any) -> Any:
    """`function(value)`; moments in `value` look like tensors to it, so that it may slice and add them."""

    def is_random(part: Any) -> bool:
        return isinstance(part, Moments)

    def as_carrier(part: Any) -> Any:
        if not is_random(part):
            return part
        if part.cov is not None:
            return carried(Gaussian(part.mean, part.cov), ("full",))
        if part.trace is None:
            return carried(part, ("exact", "total", ""))
        tape, through = part.trace
        carrier, twin = (
            carried(Moments(m, part.var), ("exact", "total", ""), tape) for m in (part.mean, through)
        )
        carrier.twin = twin
        return carrier

    if not any(map(is_random, pytree.tree_leaves(value, is_leaf=is_random))):
        return function(value)
    with CarrierMode():
        return pytree.tree_map(unwrap, function(pytree.tree_map(as_carrier, value, is_leaf=is_random)))
