"""Operations that only move entries: the same for mean and variance."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import INPLACE, rule, spelled
from bayesify.moments.standin import replace
from bayesify.moments.values import Moments, Simplex, as_moments, mean_of, parts
from bayesify.moments.writing import RESHAPES, VIEWS


def moved(operation: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """op(x) has mean op(E x) and variance op(Var x). Other random arguments only show their shape or dtype."""
    args = replace(args, Moments, mean_of)
    if not isinstance(x, Moments):
        return operation(x, *args, **kwargs)
    mean, var = operation(x.mean, *args, **kwargs), operation(x.var, *args, **kwargs)
    if isinstance(mean, Tensor):
        return Moments(mean, var)
    return tuple(Moments(m, v) for m, v in zip(mean, var, strict=True))  # split, chunk, unbind


MOVES = """
    reshape flatten view view_as reshape_as ravel t transpose permute movedim moveaxis swapaxes swapdims squeeze
    unsqueeze expand expand_as clone broadcast_to contiguous detach detach_ real imag view_as_real resolve_conj
    __getitem__ narrow select gather index_select take_along_dim masked_select roll flip rot90 repeat tile tril triu
    repeat_interleave diagonal unfold fold pixel_shuffle pixel_unshuffle channel_shuffle chunk split tensor_split
    split_with_sizes unbind hsplit vsplit adjoint unsafe_chunk unsafe_split alias view_copy dsplit fliplr flipud take
    diag diag_embed diagflat atleast_1d atleast_2d atleast_3d positive __pos__
"""
for _operation in spelled(MOVES):
    rule(_operation, half=True, complex_too=_operation.__name__ != "adjoint")(partial(moved, _operation))


for _name in ("squeeze", "unsqueeze", "transpose", "t"):  # in place: the carrier gets other views
    rule(*spelled(f"{_name}_"), half=True, complex_too=True)(partial(moved, getattr(torch.Tensor, _name)))
    RESHAPES[getattr(torch.Tensor, f"{_name}_")] = getattr(torch.Tensor, _name)

ALWAYS_VIEWS = """
    view view_as t transpose permute movedim moveaxis swapaxes swapdims squeeze unsqueeze unflatten expand expand_as
    broadcast_to detach real alias adjoint __getitem__ narrow select diagonal chunk split tensor_split split_with_sizes
    unbind hsplit vsplit dsplit
"""
CASTS = "to type type_as float double half bfloat16 cuda cpu pin_memory"
SOMETIMES_VIEWS = "reshape reshape_as flatten ravel contiguous unfold positive"
VIEWS.update(dict.fromkeys(spelled(SOMETIMES_VIEWS, CASTS), False))
VIEWS.update(dict.fromkeys(spelled(ALWAYS_VIEWS), True))


@rule(torch.broadcast_tensors, half=True, complex_too=True)
def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """All operands in their common shape."""
    shape = torch.broadcast_shapes(*(parts(t)[0].shape for t in tensors))
    return tuple(moved(torch.Tensor.expand, t, shape) for t in tensors)


@rule(torch.Tensor.__setitem__, half=True, complex_too=True)
def setitem(x: Any, key: Any, value: Any) -> Moments:
    """x[key] = value: mean and variance are written, a deterministic value has variance 0.

    Into copies, because a rule's variance may be that of its input.
    """
    (mean, var), (new, new_var) = moved(torch.clone, as_moments(x)), parts(value)
    mean[key], var[key] = new, 0.0 if new_var is None else new_var
    return Moments(mean, var)


@rule(*spelled("fill", "fill_"))
def fill(x: Any, value: Any) -> Moments:
    """Every entry becomes `value`, with its variance."""
    mean, var = parts(value)
    mean = torch.fill(parts(x)[0], mean)
    return Moments(mean, torch.zeros_like(mean) if var is None else var.expand(mean.shape))


rule(*spelled("zero_"))(partial(fill, value=0.0))
INPLACE.add(torch.Tensor.__setitem__)


@rule(torch.Tensor.copy_, half=True, complex_too=True)
def copy_(x: Any, source: Any, non_blocking: bool = False) -> Moments:
    """The source's mean and variance, in the shape and dtype of `x`."""
    like, (mean, var) = parts(x)[0], as_moments(source)
    return Moments(mean.to(like).expand(like.shape), var.to(like.device).expand(like.shape))


rule(torch.Tensor.unflatten, torch.unflatten, half=True, complex_too=True)(partial(moved, torch.unflatten))


@rule(*spelled("as_strided"), half=True)
def as_strided(x: Moments, size: Any, stride: Any, storage_offset: int | None = None) -> Moments:
    """Entries by their place in the memory of the mean, whose layout the variance need not share."""
    mean = x.mean
    length = 1 + sum((n - 1) * step for n, step in zip(mean.shape, mean.stride(), strict=True))
    places = torch.full((length,), -1, device=mean.device)
    own = torch.arange(mean.numel(), device=mean.device).view(mean.shape)
    places.as_strided(mean.shape, mean.stride()).copy_(own)
    start = 0 if storage_offset is None else storage_offset - mean.storage_offset()
    last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if start < 0 or last >= length or (picked := places.as_strided(size, stride, start)).min() < 0:
        raise NotImplementedError(not_covered(torch.as_strided, "entries beside the tensor's own"))
    return Moments(mean.reshape(-1)[picked], x.var.reshape(-1)[picked])


def cast(operation: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Another dtype or device; a row that sums to one stays one."""
    if isinstance(x, Simplex):
        args = replace(args, (Moments, Simplex), mean_of)
        mean, var, score_var = (operation(t, *args, **kwargs) for t in x[:3])
        return Simplex(mean, var, score_var, x.dropped)
    return moved(operation, x, *replace(args, Simplex, Simplex.moments), **kwargs)


for _operation in spelled(CASTS):
    rule(_operation, simplex=True, complex_too=True)(partial(cast, _operation))


def joined(operation: Any, tensors: Any, *args: Any, **kwargs: Any) -> Moments:
    """Deterministic parts have no variance."""
    means_and_variances = zip(*map(as_moments, tensors), strict=True)
    return Moments(*(operation(each, *args, **kwargs) for each in means_and_variances))


for _operation in spelled("cat concat concatenate stack hstack vstack dstack column_stack row_stack"):
    rule(_operation, half=True, complex_too=True)(partial(joined, _operation))


@rule(*spelled("masked_fill", "masked_fill_"), complex_too=True)
def masked_fill(x: Moments, mask: Tensor, value: Any) -> Moments:
    """Filled entries have no variance."""
    return Moments(x.mean.masked_fill(mask, value), x.var.masked_fill(mask, 0.0))


@rule(*spelled("nan_to_num", "nan_to_num_"), simplex=True)
def nan_to_num(x: Any, nan: float | None = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """A number put in the place of another has no variance; softmax rows of nothing but masked scores become 0."""
    finite = x.mean.isfinite()
    mean = torch.nan_to_num(x.mean, nan, posinf, neginf)
    var = torch.where(finite, x.var, 0.0)
    if isinstance(x, Simplex):
        return Simplex(mean, var, torch.where(finite, x.score_var, 0.0), x.dropped)
    return Moments(mean, var)


@rule(*spelled("where"), complex_too=True)
def where(condition: Any, x: Any, y: Any) -> Moments:
    """Each entry brings its own variance."""
    if isinstance(x, Tensor) and x.dtype == torch.bool:  # the method: x.where(condition, y)
        condition, x = x, condition
    return chosen(condition, x, y)


def chosen(condition: Tensor, x: Any, y: Any) -> Moments:
    """x where the condition holds, else y; what is not random may be a number."""
    (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
    var = torch.where(condition, 0.0 if x_var is None else x_var, 0.0 if y_var is None else y_var)
    return Moments(torch.where(condition, x_mean, y_mean), var)


@rule(F.pad, complex_too=True)
def pad(x: Moments, pad: Any, mode: str = "constant", value: float | None = None) -> Moments:
    """A constant border has no variance."""
    return Moments(F.pad(x.mean, pad, mode, value), F.pad(x.var, pad, mode))


def _like(operation: Any, x: Moments, *args: Any, **kwargs: Any) -> Tensor:
    """A deterministic tensor of the same shape."""
    return operation(x.mean, *args, **kwargs)


LIKE = """
    zeros_like ones_like empty_like rand_like randn_like full_like new_zeros new_ones new_empty new_full new_tensor
"""
CHECKS = "isnan isinf isfinite argmax argmin argsort"  # of the mean
for _operation in spelled(LIKE, CHECKS):
    rule(_operation, complex_too=True)(partial(_like, _operation))


def compared(operation: Any, x: Any, y: Any) -> Tensor:
    """By the means: to first order a step has no variance."""
    return operation(parts(x)[0], parts(y)[0])


COMPARISONS = """
    eq ne lt le gt ge less less_equal greater greater_equal not_equal __eq__ __ne__ __lt__ __le__ __gt__ __ge__
"""
for _operation in spelled(COMPARISONS):
    rule(_operation, complex_too=True)(partial(compared, _operation))


rule(torch.as_tensor)(partial(moved, torch.as_tensor))
