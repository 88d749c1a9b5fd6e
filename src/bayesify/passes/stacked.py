"""Many draws of a network at once by vmap: operations whose own rule under vmap costs more than it must.

Batch norm by running statistics is a multiply-add; vmap's rule joins the draws to the channels, which reorders the
activations before and after every layer. Where every draw has its own convolution kernel, torch runs a grouped
convolution; with one or two examples a GPU does the same product much faster as a batch of matrix products over the
unfolded input. Where draws share the kernel, Inductor runs it on a GPU in channels-last order, but writes activations
(draws, batch, channels, ...) in another and reorders them before the next convolution: so activation functions are
applied with the channels at the end.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesify.weights.calls import attributes_of

FEW = 2  # examples
ACTIVATIONS = {
    *(F.relu, F.relu6, F.leaky_relu, F.elu, F.gelu, F.silu, F.mish, F.softplus, F.hardtanh, F.hardswish),
    *(F.sigmoid, F.tanh, torch.relu, torch.sigmoid, torch.tanh),
}


class Stacked(TorchFunctionMode):
    """For the calls of a network under vmap.

    convolutions_as_products: turn plain 2-D convolutions of at most FEW examples into matrix products
    channels_last: apply activation functions with the channels of images at the end
    """

    def __init__(self, convolutions_as_products: bool, channels_last: bool) -> None:
        super().__init__()
        self.convolutions_as_products = convolutions_as_products
        self.channels_last = channels_last

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], compiled: bool) -> "Stacked":
        """For draws (n, *shape) of these weights: on a GPU, kernels of their own as matrix products."""
        cuda = any(w.is_cuda for w in weights.values())
        own_kernels = any(w.dim() == 5 for w in weights.values())
        return cls(cuda and own_kernels, cuda and not own_kernels and compiled)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None
        if func is torch.conv2d and self.convolutions_as_products:
            result = _as_matmul(*args, **kwargs)
        elif func is F.batch_norm:
            result = _as_affine(*args, **kwargs)
        elif func in ACTIVATIONS and self.channels_last and args and args[0].dim() == 4:
            result = func(args[0].permute(0, 2, 3, 1), *args[1:], **kwargs).permute(0, 3, 1, 2)
        return func(*args, **kwargs) if result is None else result


class BatchedRemoved:
    """A context that takes activations of a vmapped call out of the network again; `found` names the first one."""

    def __init__(self, net: nn.Module) -> None:
        self.before = [(attributes, dict(attributes)) for attributes in attributes_of(net)]
        self.found = ""

    def __enter__(self) -> "BatchedRemoved":
        return self

    def __exit__(self, *exception: object) -> None:
        for attributes, old in self.before:
            for name in [name for name, value in attributes.items() if _is_batched(value)]:
                self.found = self.found or name
                if name in old:
                    attributes[name] = old[name]
                else:
                    del attributes[name]


def _is_batched(value: Any) -> bool:
    return isinstance(value, Tensor) and torch.func.debug_unwrap(value) is not value


def _as_affine(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """y = s x + (β − s μ) with s = γ / √(σ² + ε); None where the statistics are those of the batch."""
    if training or running_mean is None or running_var is None:
        return None
    scale = (running_var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    scale, shift = (t.view(-1, *(1,) * (input.dim() - 2)) for t in (scale, shift))  # (channels, 1, ...)
    return torch.addcmul(shift, input.to(scale.dtype), scale).to(input.dtype)


def _as_matmul(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """y = W · unfold(x): (batch, out, positions); None where this is no plain convolution of few examples."""
    if input.dim() != 4 or input.shape[0] > FEW or isinstance(padding, str) or groups != 1:
        return None
    if _pair(dilation) != (1, 1):
        return None
    (rows, columns), (high, wide) = _pair(stride), _pair(padding)
    tall, broad = weight.shape[2:]
    x = F.pad(input, (wide, wide, high, high))
    x = x.unfold(2, tall, rows).unfold(3, broad, columns)  # (batch, in, height, width, tall, broad)
    height, width = x.shape[2:4]
    x = x.permute(0, 1, 4, 5, 2, 3).reshape(input.shape[0], -1, height * width)
    y = (weight.flatten(1) @ x).unflatten(2, (height, width))
    return y if bias is None else y + bias[:, None, None]


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (tuple(value) * 2)[:2]
