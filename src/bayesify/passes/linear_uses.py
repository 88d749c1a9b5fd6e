"""Watch one call of a network: what enters and leaves the linear operations that use its weights.

Networks are watched at operations, not at classes: F.linear, F.conv1d to conv3d, products x @ W and addmm, and torch's
multi-head attention, whose projections are taken out of it. Uses at several positions, or several uses, are rows like
those of more examples ("expand" of Eschenhagen et al. 2023).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesify.moments.rules.linear import PLAIN_CONVOLUTIONS
from bayesify.weights.observing.outside_references import flat

PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)


class Use(NamedTuple):
    """One linear operation y = x W + b.

    inputs:      (groups, rows, inputs of an output); a row is a position of an example
    output:      y, of which the loss has a gradient
    channels:    the dimension of y that holds the outputs
    transposed:  W is (inputs, outputs), not (outputs, inputs)
    """

    weight: str | None
    bias: str | None
    inputs: Tensor
    output: Tensor
    channels: int
    transposed: bool = False

    @property
    def outputs(self) -> int:
        """Of a group."""
        return self.output.shape[self.channels] // len(self.inputs)

    def rows(self, gradient: Tensor) -> Tensor:
        """A gradient by y, (groups, rows, outputs of a group)."""
        groups = self.inputs.shape[0]
        moved = gradient.movedim(self.channels, -1).flatten(0, -2)  # (rows, outputs)
        return moved.unflatten(1, (groups, -1)).movedim(1, 0)


class LinearUses(TorchFunctionMode):
    """The uses of `tracked` in the calls inside; `other` are the weights that meet another operation."""

    def __init__(self, tracked: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = {id(tensor): name for name, tensor in tracked.items()}
        self.uses: list[Use] = []
        self.other: dict[str, None] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracked = [self.names[id(v)] for v in flat((*args, *kwargs.values())) if id(v) in self.names]
        if not tracked:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._attention(*args, **kwargs)
        found = linear_arguments(func, args, kwargs)
        output = func(*args, **kwargs)
        if found is None or not self._fits(found, tracked):
            if any(isinstance(value, Tensor) for value in flat((output,))):  # reading a shape is not a use
                self.other.update(dict.fromkeys(tracked))
            return output
        inputs, weight, bias, channels, transposed = found
        name, own = (None if value is None else self.names.get(id(value)) for value in (weight, bias))
        before = next((use for use in self.uses if use.weight and use.weight == name), None)
        if before and (before.transposed, len(before.inputs)) != (transposed, len(inputs)):
            self.other[before.weight] = None  # type: ignore[index]
        self.uses.append(Use(name, own, inputs.detach(), output, channels, transposed))
        return output.clone()  # the network may write into its own copy

    def _fits(self, found: Any, tracked: list[str]) -> bool:
        """Are weight and bias the only places of tracked tensors?"""
        return len(tracked) == sum(id(value) in self.names for value in found[1:3] if value is not None)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Of (tokens, batch, features), the rows of an example one after the other; or without batch."""
        turned = x.transpose(0, 1) if x.dim() == 3 else x
        y = self.__torch_function__(F.linear, (), (turned, weight, bias))
        return y.transpose(0, 1) if x.dim() == 3 else y

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        embed_dim_to_check: int,
        num_heads: int,
        in_proj_weight: Any,
        in_proj_bias: Any,
        bias_k: Any,
        bias_v: Any,
        add_zero_attn: bool,
        dropout_p: float,
        out_proj_weight: Tensor,
        out_proj_bias: Any,
        **options: Any,
    ) -> Any:
        """Multi-head attention between its projections: those are uses, inside of it they are the identity."""
        if options.pop("use_separate_proj_weight", False) or not (query is key and key is value):
            # the packed weight meets several inputs: slices of it, which nobody follows
            given = {**options, "use_separate_proj_weight": in_proj_weight is None}
            places = [in_proj_weight, in_proj_bias, *(options.get(f"{n}_proj_weight") for n in "qkv")]
            self.other.update(dict.fromkeys(self.names[id(p)] for p in places if id(p) in self.names))
            inner = (in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p)
        else:
            query, key, value = self._linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
            eye = torch.eye(embed_dim_to_check, dtype=query.dtype, device=query.device)
            given = {f"{name}_proj_weight": eye for name in "qkv"}
            given = {**options, **given, "use_separate_proj_weight": True}
            inner = (None, None, bias_k, bias_v, add_zero_attn, dropout_p)
        last = torch.eye(out_proj_weight.shape[1], dtype=query.dtype, device=query.device)
        output, scores = F.multi_head_attention_forward(
            query, key, value, embed_dim_to_check, num_heads, *inner, last, None, **given
        )
        return self._linear(output, out_proj_weight, out_proj_bias), scores


def linear_arguments(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Any, Any, int, bool] | None:
    """(inputs (groups, rows, inputs), weight, bias, dimension of the outputs, is the weight transposed) of a linear
    operation; None of any other."""
    if func is F.linear:
        x, weight, bias = _bound(("input", "weight", "bias"), args, kwargs)
        return x.flatten(0, -2)[None] if x.dim() > 1 else x[None, None], weight, bias, -1, False
    if func in PRODUCTS and not kwargs and len(args) == 2:
        x, weight = args
        plain = isinstance(x, Tensor) and isinstance(weight, Tensor) and weight.dim() == 2 and x.dim() > 1
        return (x.flatten(0, -2)[None], weight, None, -1, True) if plain else None
    if func is torch.addmm and not kwargs and len(args) == 3:
        bias, x, weight = args
        return x[None], weight, bias, -1, True
    if func in PLAIN_CONVOLUTIONS:
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        x, weight, bias, stride, padding, dilation, groups = _bound(names, args, kwargs)
        if x.dim() == weight.dim():
            return patches(x, weight, stride, padding, dilation, groups or 1), weight, bias, 1, False
    return None


def _bound(names: Iterable[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


def patches(x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    """What enters every output of a convolution, (groups, examples · places, inputs), in the order of the weight's
    entries."""
    kernel, dims = weight.shape[2:], weight.dim() - 2
    stride, dilation = _each(stride, dims), _each(dilation, dims)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if padding == "same":
        both = [n for r in reversed(reach) for n in ((r - 1) // 2, r - 1 - (r - 1) // 2)]
    else:
        both = [n for p in reversed(_each(0 if padding == "valid" else padding, dims, 0)) for n in (p, p)]
    x = F.pad(x, both)
    for dim, (r, step, d) in enumerate(zip(reach, stride, dilation, strict=True), start=2):
        x = x.unfold(dim, r, step)[..., ::d]
    x = x.unflatten(1, (groups, -1)).movedim(1, 0)  # (groups, examples, channels, *places, *kernel)
    x = x.movedim(2, 2 + dims)  # (groups, examples, *places, channels, *kernel)
    return x.reshape(groups, math.prod(x.shape[1 : 2 + dims]), -1)


def _each(value: Any, dims: int, default: int = 1) -> tuple[int, ...]:
    if value is None:
        return (default,) * dims
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * (dims if len(value) == 1 else 1)
