"""Many draws of a convolution at once, for a handful of examples.

Under vmap every draw has its own kernel, which torch runs as a grouped convolution. With one or two examples a GPU
does the same product much faster as a batch of matrix products over the unfolded input.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEW = 2  # examples


class ConvAsMatmul(TorchFunctionMode):
    """Turns plain 2-D convolutions of at most FEW examples into matrix products."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d:
            result = _as_matmul(*args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


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
