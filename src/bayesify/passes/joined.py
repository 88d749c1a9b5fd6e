"""Many draws of a network at once by vmap, as a program for batches of any size.

Rules of vmap for convolutions, pooling, norms, linear maps of sequences and attention ask for the size of the batch,
which an exported program leaves free. Here draws are joined to the examples, (draws · batch, ...), or, where every
draw has its own kernel, to the channels, and these operations run on plain tensors.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesify import torch_internals as internals
from bayesify.moments.rules.attention import multi_head_attention

#: operations on each example by itself, whose first argument alone is random
BY_EXAMPLE = {
    *(
        getattr(F, f"{kind}_pool{d}d")
        for d in (1, 2, 3)
        for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
    ),
    *(torch.max_pool1d, torch.max_pool2d, torch.max_pool3d, F.interpolate, F.pad),
}
CONVOLUTIONS = {torch.conv1d, torch.conv2d, torch.conv3d}


class Joined(TorchFunctionMode):
    """For the calls of a network under vmap while it is exported."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return _linear(*args, **kwargs)
        if not any(map(_is_drawn, (*args, *kwargs.values()))):
            return func(*args, **kwargs)
        if func in BY_EXAMPLE and _is_drawn(args[0]):
            return _by_example(lambda x: func(x, *args[1:], **kwargs), args[0])
        if func in CONVOLUTIONS:
            return _convolution(func, *args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                return multi_head_attention(*args, **kwargs)
        if func is F.layer_norm:
            return _layer_norm(*args, **kwargs)
        if func is F.group_norm:
            return _group_norm(*args, **kwargs)
        if func is F.scaled_dot_product_attention and len(args) == 3 and kwargs.get("attn_mask") is None:
            return _by_example(lambda *each: func(*each, **kwargs), *args)
        return func(*args, **kwargs)


def _is_drawn(value: Any) -> bool:
    return isinstance(value, Tensor) and internals.functorch.is_batchedtensor(value)


def _taken(value: Tensor) -> tuple[Tensor, int | None]:
    """The tensor of all draws and where they stand in it; None: they share it."""
    if not _is_drawn(value):
        return value, None
    return internals.functorch.get_unwrapped(value), internals.functorch.maybe_get_bdim(value)


def _given(value: Tensor, dim: int, *of: Any) -> Tensor:
    """A result with the draws at `dim`, of the vmap that some of the operands `of` are in."""
    level = next(internals.functorch.maybe_get_level(each) for each in of if _is_drawn(each))
    found: Tensor = internals.functorch._add_batch_dim(value, dim, level)
    return found


def _by_example(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """`function` of (draws · batch, ...)."""
    taken = [_taken(each) for each in operands]
    n = next(each.shape[dim] for each, dim in taken if dim is not None)
    whole = [each.expand(n, *each.shape) if dim is None else each.movedim(dim, 0) for each, dim in taken]
    return _given(function(*(each.flatten(0, 1) for each in whole)).unflatten(0, (n, -1)), 0, *operands)


def _convolution(
    function: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Kernels of the draws stand side by side as output channels, (draws · out, in, ...); where each draw has its own
    input too, in groups."""
    if _is_drawn(weight):
        (x, dim), (w, at) = _taken(input), _taken(weight)
        assert at is not None
        n = w.shape[at]
        kernels = w.movedim(at, 0).flatten(0, 1)
        if dim is not None or groups > 1:
            x = x[:, None].expand(-1, n, *x.shape[1:]) if dim is None else x.movedim(dim, 1)
            x, groups = x.flatten(1, 2), n * groups  # (batch, draws · in, ...)
        found = _given(
            function(x, kernels, None, stride, padding, dilation, groups).unflatten(1, (n, -1)),
            1,
            input,
            weight,
        )
    else:
        found = _plain(lambda x: function(x, weight, None, stride, padding, dilation, groups), input)
    return _scaled(found, None, None if bias is None else bias.view(-1, *(1,) * (weight.dim() - 2)))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _is_drawn(weight) and not _is_drawn(bias):
        return _plain(lambda x: F.linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1]), input)
    return _scaled(input @ weight.mT, None, bias)


def _layer_norm(
    input: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return _scaled(_plain(lambda x: F.layer_norm(x, shape, eps=eps), input), weight, bias)


def _group_norm(
    input: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    weight, bias = (p if p is None else p.view(-1, *(1,) * (input.dim() - 2)) for p in (weight, bias))
    return _scaled(_plain(lambda x: F.group_norm(x, groups, eps=eps), input), weight, bias)


def _plain(function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    return _by_example(function, input) if _is_drawn(input) else function(input)


def _scaled(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias
