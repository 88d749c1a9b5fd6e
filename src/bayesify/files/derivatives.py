"""Derivatives in a program for other runtimes, which know operations of a forward pass only."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesify import torch_internals as internals

aten = torch.ops.aten
#: those that torch itself can write in operations of a forward pass
TORCHS_OWN = [
    aten._softmax_backward_data,
    aten._log_softmax_backward_data,
    aten.select_backward,
    aten.slice_backward,
    aten.gelu_backward,
    aten.tanh_backward,
    aten.sigmoid_backward,
    aten.threshold_backward,
    aten.embedding_dense_backward,
    aten.native_layer_norm_backward,
    aten.native_group_norm_backward,
    aten.unfold_backward,
]


def traced(program: nn.Module, example: tuple[Tensor, ...]) -> nn.Module:
    """`program` as a graph of operations that torch.export takes, those of its derivatives among them."""
    with _Plain():
        return internals.traced_with_derivatives(
            program, example, {**internals.derivative_forms(TORCHS_OWN), **FORMS}
        )


class _Plain(TorchFunctionMode):
    """Batch norm at rest written out, and convolutions with derivatives of their own: torch's second derivatives of
    both are for one size of the batch."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in CONVOLUTIONS:
            return _convolution(function, *args, **kwargs)
        return (_batch_norm if function is F.batch_norm else function)(*args, **kwargs)


CONVOLUTIONS = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}


def _convolution(
    function: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    n = CONVOLUTIONS[function]
    if isinstance(padding, str) or x.dim() != n + 2:
        return function(x, weight, bias, stride, padding, dilation, groups)
    stride, padding, dilation = (
        [each] * n if isinstance(each, int) else [*each] for each in (stride, padding, dilation)
    )
    out: Any = _Convolution.apply(x, weight, (stride, padding, dilation, False, [0] * n, groups))
    return out if bias is None else out + bias.view(-1, *[1] * n)


class _Convolution(torch.autograd.Function):
    """x * w, with derivatives that are convolutions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, geometry: Any) -> Tensor:
        return aten.convolution(x, weight, None, *geometry)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        *tensors, ctx.geometry = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        backward: Any = convolution_backward
        by_input = backward(grad, x, weight, None, *ctx.geometry, [True, False, False])[0]
        return by_input, _ByWeight.apply(grad, x, weight, ctx.geometry), None


class _ByWeight(torch.autograd.Function):
    """The derivative of x * w by w along g, which is linear in g: its own along v is x * v."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Any) -> Tensor:
        return aten.convolution_backward(grad, x, weight, None, *geometry, [False, True, False])[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        _, x, _, ctx.geometry = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return aten.convolution(x, along, None, *ctx.geometry), None, None, None


def _batch_norm(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or mean is None or var is None:
        return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    shape = (1, -1, *[1] * (x.dim() - 2))
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    out = (x - mean.view(shape)) * scale.view(shape)
    return out if bias is None else out + bias.view(shape)


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> Any:
    """By the input: the convolution the other way round."""
    if mask[1] or mask[2]:
        return NotImplemented
    if transposed:
        back = aten.convolution(
            grad, weight, None, stride, padding, dilation, False, [0] * len(stride), groups
        )
        return back, None, None
    geometry = zip(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    beyond = [size - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for size, n, k, s, p, d in geometry]
    back = aten.convolution(grad, weight, None, stride, padding, dilation, True, beyond, groups)
    return back, None, None


def max_pool2d_backward(grad: Tensor, x: Tensor, *_: Any) -> Tensor:
    """To the entries that were chosen."""
    zeros = torch.zeros_like(x).flatten(-2)
    return zeros.scatter_add(-1, _[-1].flatten(-2), grad.flatten(-2)).reshape(x.shape)


def avg_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Any:
    """In equal parts to the entries of a window: a transposed convolution of every channel by itself."""
    stride = stride or kernel
    if ceil_mode or (any(padding) and not count_include_pad):
        return NotImplemented
    share = 1 / (divisor or kernel[0] * kernel[1])
    ones = torch.full((x.shape[-3], 1, *kernel), share, dtype=grad.dtype, device=grad.device)
    geometry = zip(x.shape[-2:], grad.shape[-2:], kernel, stride, padding, strict=True)
    beyond = [size - ((n - 1) * s - 2 * p + k) for size, n, k, s, p in geometry]
    inside = [min(b, s - 1) for b, s in zip(beyond, stride, strict=True)]
    back = F.conv_transpose2d(grad, ones, None, stride, padding, inside, x.shape[-3])
    rest = [b - i for b, i in zip(beyond, inside, strict=True)]
    return F.pad(back, (0, rest[1], 0, rest[0])) if any(rest) else back


FORMS = {
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool2d_backward,
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
}
