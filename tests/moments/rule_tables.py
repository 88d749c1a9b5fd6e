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
    "tanhshrink": F.tanhshrink,
    "softshrink": lambda x: F.softshrink(x, 0.6),
    "hardshrink": lambda x: F.hardshrink(x, 0.6),
    "hardtanh": lambda x: F.hardtanh(x, -0.6, 0.4),
    "relu6": F.relu6,
    "abs": torch.abs,
    "square": torch.square,
    "x * x": lambda x: x * x,
    "pow": lambda x: x**3,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "2 ** x": lambda x: 2**x,
    "pow of a tensor": lambda x: torch.pow(torch.tensor(0.7).double(), x),
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "ndtr": torch.special.ndtr,
    "atan": torch.atan,
    "asin": lambda x: torch.asin(0.9 * torch.sin(x)),
    "acos": lambda x: torch.acos(0.9 * torch.sin(x)),
    "atanh": lambda x: torch.atanh(0.9 * torch.sin(x)),
    "logit": lambda x: torch.logit(0.5 + 0.4 * torch.sin(x)),
    "logit, clamped": lambda x: torch.logit(torch.sigmoid(x), 0.05),
    "atan2": lambda x: torch.atan2(x, torch.tensor(2.0).double()),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "neg": lambda x: -x,
}
POSITIVE: dict[str, Callable[..., Any]] = {
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "reciprocal": torch.reciprocal,
    "2 / x": lambda x: 2 / x,
    "x ** 0.5": lambda x: x**0.5,
}


def warped(padding: str, corners: bool, mode: str = "bilinear") -> Callable[[Any], Any]:
    """Images read at places some of which lie outside."""
    grid = torch.linspace(-1.3, 1.2, 2 * 3 * 3 * 2).double().sin().mul(1.4).view(2, 3, 3, 2)
    return lambda x: F.grid_sample(x, grid, mode, padding, corners)


def read(padding: str, corners: bool) -> Callable[[Any], Any]:
    """A fixed image at random places."""
    image = torch.arange(2 * 2 * 4 * 3).double().sin().view(2, 2, 4, 3)
    return lambda g: F.grid_sample(image, g, "bilinear", padding, corners)


WORDS = torch.tensor([0, 2, 0, 1, 3, 3])  # two of them twice in a bag
SHARES = torch.tensor([0.5, -1.0, 2.0, 1.5, 1.0, 0.3]).double()


def rms(x: Any) -> Any:
    return F.rms_norm(x, (3, 4), torch.arange(1, 13).double().view(3, 4), 0.1)


#: name -> (function, input shape): the rule has every entry's full first order
JOINT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "softmax": (lambda x: F.softmax(x, -1), (3, 5)),
    "softmax, first dimension": (lambda x: x.softmax(0), (3, 5)),
    "softmin": (lambda x: F.softmin(x, 0), (3, 5)),
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
    "cdist": (lambda x: torch.cdist(x, torch.arange(8.0).double().view(2, 4)), (3, 4)),
    "cdist of halves": (lambda x: torch.cdist(*x.chunk(2), p=2), (2, 3, 4)),
    "cdist, p = 1": (lambda x: torch.cdist(*x.chunk(2), p=1.0), (4, 3)),
    "pairwise_distance": (lambda x: F.pairwise_distance(*x.chunk(2), eps=0.1), (4, 3)),
    "dist": (lambda x: torch.dist(x, torch.ones(4).double()), (4,)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3, 2.0, 0.75, 0.5), (2, 5, 2)),
    "local_response_norm, even": (lambda x: F.local_response_norm(x, 2, 2.0), (1, 4, 2, 2)),
    "pow of halves": (lambda x: torch.pow(x[:2].exp(), x[2:]), (4,)),
    "atan2 of halves": (lambda x: torch.atan2(*(x + 3).chunk(2)), (4,)),
    "dot of x with itself": (lambda x: torch.dot(x, x), (4,)),
    "einsum of x with itself": (lambda x: torch.einsum("bi,bi->b", x, x), (2, 3)),
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
    "scatter": (lambda x: torch.ones(3, 2).double().scatter(0, torch.tensor([[0, 2]]), x), (1, 2)),
    "scatter of a number": (lambda x: x.scatter(1, torch.tensor([[0], [2]]), 3.0), (2, 3)),
    "index_copy": (lambda x: torch.ones(3, 2).double().index_copy(0, PLACES[:2], x), (2, 2)),
    "index_fill": (lambda x: x.index_fill(1, PLACES, 2.0), (2, 4)),
    "embedding_bag": (lambda w: F.embedding_bag(WORDS.view(2, 3), w), (4, 2)),
    "embedding_bag, sums": (
        lambda w: F.embedding_bag(WORDS, w, torch.tensor([0, 3, 3]), mode="sum", per_sample_weights=SHARES),
        (4, 2),
    ),
    "embedding_bag, padded": (
        lambda w: F.embedding_bag(WORDS, w, torch.tensor([0, 4, 6]), include_last_offset=True, padding_idx=3),
        (4, 2),
    ),
    "grid_sample": (warped("zeros", False), (2, 2, 4, 3)),
    "grid_sample, border": (warped("border", True), (2, 2, 4, 3)),
    "grid_sample, reflection": (warped("reflection", False), (2, 1, 4, 3)),
    "grid_sample, reflected corners": (warped("reflection", True), (2, 1, 3, 4)),
    "grid_sample, nearest": (warped("zeros", False, "nearest"), (2, 1, 3, 4)),
    "grid_sample, volume": (
        lambda x: F.grid_sample(
            x, torch.linspace(-1, 0.9, 12).double().view(1, 2, 2, 1, 3), align_corners=False
        ),
        (1, 2, 2, 3, 3),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, (2, 1, 3, 2), align_corners=False), (2, 2, 3)),
    "affine_grid of volumes": (lambda t: F.affine_grid(t, (1, 1, 2, 3, 2), align_corners=True), (1, 3, 4)),
    "places of a grid": (read("zeros", False), (2, 2, 3, 2)),
    "places of a grid, border": (read("border", True), (2, 2, 3, 2)),
    "places of a grid, reflection": (read("reflection", False), (2, 2, 3, 2)),
    "trace": (torch.trace, (3, 3)),
    "diag_embed": (lambda x: torch.diag_embed(x.fliplr()), (2, 3)),
    "views in place": (lambda x: x.clone().unsqueeze_(0).transpose_(1, 2).squeeze_(0).t_(), (2, 3)),
    "broadcast_tensors": (lambda x: torch.broadcast_tensors(torch.ones(2, 1, 3), +x)[1], (4, 3)),
    "addmm_": (lambda x: x.clone().addmm_(x.new_ones(2, 4), x.new_ones(4, 3)), (2, 3)),
    "baddbmm, random bias": (
        lambda x: torch.baddbmm(x, x.new_ones(2, 3, 4), x.new_ones(2, 4, 2), beta=0.5),
        (2, 1, 2),
    ),
    "sum": (lambda x: x.sum(), (2, 3)),
    "sum over a dimension": (lambda x: torch.sum(x, (0, 2), keepdim=True), (2, 3, 4)),
    "mean": (lambda x: x.mean((-1, -2)), (2, 3, 4)),
    "mean, as in numpy": (lambda x: x.mean(axis=1, keepdims=True), (3, 4)),
    "cumsum": (lambda x: x.cumsum(0), (3, 4)),
    "cat with a plain tensor": (lambda x: torch.cat([x, torch.ones(2, 3).double()], 1), (2, 3)),
    "stack": (lambda x: torch.stack((x, torch.zeros_like(x)), 1), (2, 3)),
    "hstack": (lambda x: torch.hstack((x, torch.ones(2, 1).double())), (2, 3)),
    "vstack": (lambda x: torch.vstack((torch.ones(3).double(), x)), (2, 3)),
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
    "amax over two dimensions": (lambda x: x.amax((0, 2)), (3, 4, 2)),
    "amin": (lambda x: torch.amin(x, (1, 2), keepdim=True), (3, 4, 2)),
    "amin of all": (lambda x: x.amin(), (3, 4)),
    "max": (lambda x: x.max(1)[0], (3, 4)),
    "max of all": (lambda x: x.max(), (3, 4)),
    "min": (lambda x: torch.min(x, 0, keepdim=True).values, (3, 4)),
    "maximum": (lambda x: torch.maximum(*x.chunk(2)), (4, 3)),
    "minimum with a plain tensor": (lambda x: torch.minimum(torch.zeros(3).double(), x), (4, 3)),
    "max of two": (lambda x: torch.max(x, torch.ones_like(x) / 3), (4, 3)),
    "sort": (lambda x: x.sort(0, descending=True)[0], (4, 3)),
    "max_unpool2d": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (1, 2, 4, 4)),
    "topk": (lambda x: x.topk(2, 0)[0], (4, 3)),
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
    "dot": (torch.dot, (4,), (4,)),
    "vecdot": (lambda x, y: torch.linalg.vecdot(x, y, dim=0), (3, 4), (3, 1)),
    "outer": (torch.outer, (3,), (4,)),
    "inner": (torch.inner, (3, 4), (2, 4)),
    "kron": (torch.kron, (2, 3), (2, 2)),
    "tensordot": (lambda x, y: torch.tensordot(x, y, dims=([0, 2], [1, 0])), (2, 3, 4), (4, 2, 3)),
    "baddbmm": (
        lambda x, y: torch.baddbmm(torch.ones(2).double(), x, y, alpha=2, beta=3),
        (2, 3, 4),
        (2, 4, 2),
    ),
    "addbmm": (lambda x, y: torch.addbmm(torch.ones(2).double(), x, y, alpha=-2), (2, 3, 4), (2, 4, 2)),
    "addmv": (lambda x, y: torch.addmv(torch.ones(3).double(), x, y, alpha=2), (3, 4), (4,)),
    "addr": (lambda x, y: torch.addr(torch.ones(3, 4).double(), x, y, alpha=0.5), (3,), (4,)),
    "prod": (lambda x, y: torch.stack([x, y], 1).prod(1), (3, 4), (3, 4)),
    "prod of all": (lambda x, y: torch.cat([x, torch.tensor([-2.0]).double(), y]).prod(), (1,), (1,)),
    "cumprod": (lambda x, y: torch.cat([x, torch.full((2, 3), -1.3).double(), y]).cumprod(0), (1, 3), (1, 3)),
    "addcmul": (lambda x, y: torch.addcmul(torch.ones(4).double(), x, y, value=-2), (3, 4), (4,)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (3, 4), (3, 4)),
    "lerp by a random weight": (lambda x, w: torch.ones(3, 4).double().lerp(x, w), (3, 4), (3, 4)),
    "index_add": (lambda x, y: x.index_add(0, PLACES, y), (3, 2), (4, 2)),
    "scatter_add": (lambda x, y: torch.scatter_add(x, 0, PLACES, y), (3,), (4,)),
    "scatter mean": (lambda x, y: x.scatter_reduce(0, PLACES, y, "mean"), (3,), (4,)),
}
