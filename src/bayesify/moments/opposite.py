"""What Inductor needs to be told about the tape's graph: derivatives of convolutions, and what is computed once."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.execution import compiling
from bayesify.moments.rules.linear import PLAIN_CONVOLUTIONS
from bayesify.moments.rules.pool import per_dimension

PARALLEL = (
    "cuda",
)  # devices where work is cut into pieces, and elementwise work costs what it reads and writes


def linear_map(func: Any, x: Tensor, weight: Tensor, bias: Any = None, *rest: Any, **named: Any) -> Tensor:
    """func(x, weight, bias, …). A compiled convolution is written as the derivative of its opposite.

    What autograd makes of a convolution is an operation of its own, which keeps x alive for its shape and which
    Inductor leaves in the layout of eager code. The derivative of that operation, in turn, is a convolution: it gets
    the layout that is fast, and what is only there to be differentiated falls away.
    """
    stride, padding, dilation, groups = geometry(False, rest, named)
    if not compiling() or func not in PLAIN_CONVOLUTIONS or isinstance(padding, str):
        return func(x, weight, bias, *rest, **named)
    if x.dim() != weight.dim() or x.is_complex():
        return func(x, weight, bias, *rest, **named)
    kernel, dims = weight.shape[2:], weight.dim() - 2
    stride, padding, dilation = (list(per_dimension(value, dims)) for value in (stride, padding, dilation))
    spans = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    sizes = [(n - span) // s + 1 for n, span, s in zip(x.shape[2:], spans, stride, strict=True)]
    # compared, so that of a size which is free in compiled code a number comes out
    rests = [
        next(r for r in range(s) if (n - span) % s == r)
        for n, span, s in zip(x.shape[2:], spans, stride, strict=True)
    ]
    like = x.new_empty(()).expand(x.shape[0], weight.shape[0], *sizes)
    y = torch.ops.aten.convolution_backward(
        x, like, weight, None, stride, padding, dilation, True, rests, groups, (True, False, False)
    )[0]
    return y if bias is None else y + bias.view(-1, *[1] * dims)


def settled(value: Tensor) -> Tensor:
    """`value` (batch, channels, height, width), computed once. Inductor computes what is elementwise where it is read,
    and seeds read it once each, with all that it is made of; windows of a pool it has in memory first, of one entry
    too."""
    once = compiling() and value.device.type in PARALLEL and value.dim() == 4
    return F.avg_pool2d(value, 1) if once else value


def geometry(transposed: bool, rest: Any, named: Any) -> tuple[Any, ...]:
    """(stride, padding, dilation, groups) from what follows the bias of a convolution."""
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    names = ("stride", "padding", "output_padding", "groups", "dilation") if transposed else tuple(defaults)
    known = defaults | dict(zip(names, rest, strict=False)) | named
    return tuple(known[name] for name in defaults)
