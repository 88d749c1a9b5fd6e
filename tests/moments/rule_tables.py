"""The operations that have rules, as functions of random tensors: what the tests of this room go through."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PLACES = torch.tensor([0, 2, 0, 2])  # where four entries go: the second of three places stays empty

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3, dtype=torch.float64)),
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2.0),
    "softsign": F.softsign,
    "sigmoid": torch.sigmoid,
    "logsigmoid": F.logsigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "threshold": lambda x: F.threshold(x, 0.6, -0.3),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.6, 0.4),
    "relu6": F.relu6,
    "abs": torch.abs,
    "square": torch.square,
    "x * x": lambda x: x * x,
    "pow": lambda x: x**3,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "neg": lambda x: -x,
}
POSITIVE: dict[str, Callable[..., Any]] = {
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "log": torch.log,
    "log1p": torch.log1p,
    "reciprocal": torch.reciprocal,
    "2 / x": lambda x: 2 / x,
    "x ** 0.5": lambda x: x**0.5,
}


def rms(x: Any) -> Any:
    return F.rms_norm(x, (3, 4), torch.arange(1, 13).double().view(3, 4), 0.1)


#: name -> (function, input shape): the rule has every entry's full first order
JOINT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "softmax": (lambda x: F.softmax(x, -1), (3, 5)),
    "softmax, first dimension": (lambda x: x.softmax(0), (3, 5)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), (3, 5)),
    "logsumexp": (lambda x: x.logsumexp(1), (3, 5)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,), torch.arange(1, 5).double(), None, 0.5), (3, 4)),
    "layer_norm, two dimensions": (lambda x: F.layer_norm(x, (3, 4)), (2, 3, 4)),
    "group_norm": (lambda x: F.group_norm(x, 2, torch.arange(4).double(), eps=0.1), (2, 4, 3)),
    "instance_norm": (lambda x: F.instance_norm(x, eps=0.1), (2, 3, 5)),
    "rms_norm": (rms, (2, 3, 4)),
    "weight norm": (lambda x: torch._weight_norm(x, torch.ones(3, 1).double(), 0), (3, 4)),
    "vector norm": (lambda x: torch.linalg.vector_norm(x, dim=1), (3, 4)),
    "norm of a tensor": (lambda x: x.norm(), (3, 4)),
    "norm with p = 3": (lambda x: torch.norm(x, 3, (0, 2), True), (2, 3, 4)),
    "linalg.norm": (lambda x: torch.linalg.norm(x, 2, -1), (2, 3)),
    "normalize": (lambda x: F.normalize(x, dim=-1), (3, 4)),
    "normalize, p = 1": (lambda x: F.normalize(x, 1.0), (2, 4)),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, torch.arange(4.0).double()), (3, 4)),
    "cosine_similarity of halves": (lambda x: F.cosine_similarity(*x.chunk(2), dim=-1), (2, 5)),
    "var": (lambda x: x.var((0, 1)), (3, 4, 2)),
    "var, biased": (lambda x: torch.var(x, 1, unbiased=False, keepdim=True), (3, 4)),
    "std": (lambda x: x.std(-1, correction=0), (3, 4)),
    "std_mean": (lambda x: torch.stack(torch.std_mean(x, 1)), (3, 4)),
    "index_add": (lambda x: torch.ones(3, 2).double().index_add(0, PLACES, x, alpha=2), (4, 2)),
    "scatter_add in place": (
        lambda x: x.clone().scatter_add_(1, PLACES[:, None], 2 - torch.ones_like(x)),
        (4, 3),
    ),
    "scatter_reduce": (lambda x: torch.zeros(3).double().scatter_reduce(0, PLACES, x, "sum"), (4,)),
    "scatter mean": (
        lambda x: torch.ones(3).double().scatter_reduce(0, PLACES, x, "mean", include_self=False),
        (4,),
    ),
    "sum": (lambda x: x.sum(), (2, 3)),
    "sum over a dimension": (lambda x: torch.sum(x, (0, 2), keepdim=True), (2, 3, 4)),
    "mean": (lambda x: x.mean((-1, -2)), (2, 3, 4)),
    "mean, as in numpy": (lambda x: x.mean(axis=1, keepdims=True), (3, 4)),
    "cumsum": (lambda x: x.cumsum(0), (3, 4)),
    "cat with a plain tensor": (lambda x: torch.cat([x, torch.ones(2, 3).double()], 1), (2, 3)),
    "stack": (lambda x: torch.stack((x, torch.zeros_like(x)), 1), (2, 3)),
    "split": (lambda x: x.split(2, 1)[1], (2, 5)),
    "chunk": (lambda x: torch.chunk(x, 2)[0], (4, 3)),
    "unbind": (lambda x: x.unbind(1)[2], (4, 3)),
    "permute": (lambda x: x.permute(2, 0, 1), (2, 3, 4)),
    "indexing": (lambda x: x[:, None, 1:, [0, 2]], (2, 3, 4)),
    "roll": (lambda x: torch.roll(x, (1, 2), (0, 1)), (3, 4)),
    "masked_fill": (lambda x: x.masked_fill(torch.tensor([True, False, True]), -2.0), (2, 3)),
    "where": (lambda x: torch.where(torch.tensor([True, False, True]), x, 1.0), (2, 3)),
    "pad": (lambda x: F.pad(x, (1, 2), value=3.0), (2, 3)),
    "pad, reflected": (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), (1, 2, 3, 3)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (1, 2, 3, 3)),
    "linear": (lambda x: F.interpolate(x, size=7, mode="linear"), (1, 2, 4)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=(2, 1.5), mode="bilinear"), (1, 2, 4, 4)),
    "bilinear, corners": (
        lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True),
        (1, 1, 3, 4),
    ),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (1, 1, 2, 3, 2)),
    "bicubic": (lambda x: F.interpolate(x, size=(5, 6), mode="bicubic"), (1, 1, 3, 4)),
    "antialias": (lambda x: F.interpolate(x, size=(2, 3), mode="bilinear", antialias=True), (1, 1, 6, 7)),
    "area": (lambda x: F.interpolate(x, size=(2, 3), mode="area"), (1, 1, 4, 7)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (2, 3, 6)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (1, 2, 6, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, ceil_mode=True), (1, 1, 3, 4, 3)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (1, 2, 5, 6)),
    "amax": (lambda x: x.amax(-1), (3, 4)),
    "max": (lambda x: x.max(1)[0], (3, 4)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (1, 2, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (2, 3)), (1, 2, 4, 6)),
    "avg_pool2d, padded": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (1, 1, 6, 6)),
    "avg_pool2d, divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (1, 1, 4, 4)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 2, 1), (1, 1, 4, 4, 2)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), (1, 2, 7)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, None)), (1, 2, 5, 3)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 1), (1, 2, 3, 2, 3)),
    "3 - x": (lambda x: 3 - 2 * x / 5, (4,)),
    "x - tensor": (lambda x: torch.arange(4.0).double() - x * torch.arange(4.0).double(), (4,)),
    "x - x": (lambda x: x - x, (4,)),
    "in place": (lambda x: x.clone().mul_(2).add_(1).div_(3).sub_(x.new_ones(4)), (4,)),
    "to another type": (lambda x: x.float().double().to(torch.float64).type_as(x), (4,)),
}

#: name -> (operation of input, weight and bias; shapes of the three)
MAPS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...], int]] = {
    "linear": (F.linear, (2, 4), (3, 4), 3),
    "linear, square": (F.linear, (2, 3), (3, 3), 3),
    "linear on tokens": (F.linear, (2, 2, 3), (2, 3), 2),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2), (1, 4, 6), (2, 2, 2), 2),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=(2, 1)), (1, 2, 3, 3), (2, 2, 2, 2), 2),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b), (1, 1, 3, 2, 2), (2, 1, 2, 2, 1), 2),
    "conv_transpose1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1, groups=2),
        (1, 4, 3),
        (4, 1, 3),
        2,
    ),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, dilation=2),
        (1, 2, 2, 2),
        (2, 2, 2, 1),
        2,
    ),
    "conv_transpose3d": (lambda x, w, b: F.conv_transpose3d(x, w, b), (1, 2, 2, 1, 1), (2, 1, 1, 2, 2), 1),
}

#: name -> (operation of two random tensors, their shapes)
PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "matmul": (torch.matmul, (2, 3, 4), (4, 2)),
    "@": (lambda x, y: x @ y, (3, 4), (4, 2)),
    "bmm": (torch.bmm, (2, 3, 4), (2, 4, 2)),
    "mv": (torch.mv, (3, 4), (4,)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), (2, 3, 4), (2, 2, 4)),
    "einsum, an index summed alone": (lambda x, y: torch.einsum("ij,jk->k", x, y), (3, 4), (4, 2)),
    "einsum, ellipsis": (lambda x, y: torch.einsum("...i,ij->...j", x, y), (2, 3, 4), (4, 2)),
    "einsum, implicit": (lambda x, y: torch.einsum("ij,jk", [x, y]), (3, 4), (4, 2)),
    "mul": (lambda x, y: x * y, (3, 4), (4,)),
    "addcmul": (lambda x, y: torch.addcmul(torch.ones(4).double(), x, y, value=-2), (3, 4), (4,)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (3, 4), (3, 4)),
    "lerp by a random weight": (lambda x, w: torch.ones(3, 4).double().lerp(x, w), (3, 4), (3, 4)),
    "index_add": (lambda x, y: x.index_add(0, PLACES, y), (3, 2), (4, 2)),
    "scatter_add": (lambda x, y: torch.scatter_add(x, 0, PLACES, y), (3,), (4,)),
    "scatter mean": (lambda x, y: x.scatter_reduce(0, PLACES, y, "mean"), (3,), (4,)),
}
