"""Pooling: the maximum by co-pooling, averages as the linear maps they are."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments


def max_pool(with_indices: Any, dims: int, x: Moments, *args: Any, **kwargs: Any) -> Any:
    """The largest mean of each window and the variance at its place (co-pooling)."""
    wanted = kwargs.pop("return_indices", False)
    mean, index = with_indices(x.mean, *args, **kwargs)
    # (..., window places): indices count inside the pooled dimensions
    var = x.var.flatten(-dims).gather(-1, index.flatten(-dims)).view(mean.shape)
    return (Moments(mean, var), index) if wanted else Moments(mean, var)


def avg_pool(
    dims: int,
    x: Moments,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Moments:
    """Of a window whose sum is divided by d: Var = Σ Var x / d² = average of Var x / d."""
    options = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    mean, var = (_average(dims, value, *options, divisor_override) for value in x)
    if divisor_override is not None:
        return Moments(mean, var / divisor_override)
    entries = torch.Size(per_dimension(kernel_size, dims)).numel()
    if not ceil_mode and (count_include_pad or not any(per_dimension(padding, dims))):
        return Moments(mean, var / entries)
    ones = torch.ones_like(x.mean[(0,) * (x.mean.dim() - dims)])[None, None]  # (1, 1, *spatial)
    if not ceil_mode:  # without a divisor of ours, which ONNX does not know
        divisor = entries * _average(dims, ones, *options[:4], True, None)
    else:
        divisor = _average(dims, ones, *options, 1) / _average(dims, ones, *options, None)
    return Moments(mean, var / divisor[0, 0])


def _average(dims: int, value: Tensor, *options: Any) -> Tensor:
    if dims > 1:
        return (F.avg_pool2d if dims == 2 else F.avg_pool3d)(value, *options)
    kernel, stride, padding, *rest = options  # avg_pool1d has no divisor: a plane of height 1 has
    stride = kernel if stride is None else stride
    sizes = ((1, *per_dimension(kernel, 1)), (1, *per_dimension(stride, 1)), (0, *per_dimension(padding, 1)))
    return F.avg_pool2d(value.unsqueeze(-2), *sizes, *rest).squeeze(-2)


def adaptive_avg_pool(operation: Any, dims: int, x: Moments, output_size: Any) -> Moments:
    """Windows of n entries: Σ Var x / n²; n may differ from window to window."""
    mean = operation(x.mean, output_size)
    count: Any = 1
    for d in range(-dims, 0):
        size, windows = x.mean.shape[d], mean.shape[d]
        if size % windows == 0:
            count = count * (size // windows)
            continue
        i = torch.arange(windows, device=mean.device)
        ends, starts = ((i + 1) * size + windows - 1) // windows, i * size // windows
        count = count * (ends - starts).to(mean.dtype).view(-1, *(1,) * (-1 - d))
    return Moments(mean, operation(x.var, output_size) / count)


def per_dimension(value: Any, dims: int) -> tuple[int, ...]:
    """One number for each dimension, from one for all or one each."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


def _indexed(name: str) -> Any:
    return getattr(F, f"{name}_with_indices")


for _d in (1, 2, 3):
    for _kind in ("max_pool", "adaptive_max_pool"):
        _largest = partial(max_pool, _indexed(f"{_kind}{_d}d"), _d)
        rule(*spelled(f"{_kind}{_d}d"))(_largest)
        rule(_indexed(f"{_kind}{_d}d"))(partial(_largest, return_indices=True))
    (_unpool,) = spelled(f"max_unpool{_d}d")
    rule(_unpool)(partial(moved, _unpool))
    rule(getattr(F, f"avg_pool{_d}d"))(partial(avg_pool, _d))
    _adaptive = getattr(F, f"adaptive_avg_pool{_d}d")
    rule(_adaptive)(partial(adaptive_avg_pool, _adaptive, _d))
