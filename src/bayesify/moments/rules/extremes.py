"""Largest and smallest entries: the moments of the entry whose mean is the extreme one, as in co-pooling."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify.moments.registry import rule, spelled
from bayesify.moments.rules.shape import chosen, moved
from bayesify.moments.values import Entries, Moments, parts


def extreme_of(pick: Any, x: Moments, dim: Any = (), keepdim: bool = False) -> Moments:
    """Over one dimension, several, or all of them."""
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(x.mean.dim()))
    dims = sorted(d % x.mean.dim() for d in dims)
    shape = [1 if d in dims else size for d, size in enumerate(x.mean.shape)]
    mean, var = (t.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims)) for t in x)
    index = pick(mean, -1, keepdim=True)
    picked = Moments(*(t.gather(-1, index).reshape(shape) for t in (mean, var)))
    return picked if keepdim else moved(torch.squeeze, picked, dims)


rule(*spelled("amax"))(partial(extreme_of, torch.argmax))
rule(*spelled("amin"))(partial(extreme_of, torch.argmin))


def extreme(pick: Any, ahead: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Of all entries, of two tensors entry by entry, or over `dim` with the indices, as torch has them."""
    if dim is None:
        return extreme_of(pick, x)
    if not isinstance(dim, int):
        return extreme_of_two(ahead, x, dim)
    index = pick(x.mean, dim, keepdim=True)
    return Entries(extreme_of(pick, x, dim, keepdim), index if keepdim else index.squeeze(dim))


def extreme_of_two(ahead: Any, x: Any, other: Any) -> Moments:
    """Entry by entry the operand whose mean is ahead, with its variance."""
    return chosen(ahead(parts(x)[0], parts(other)[0]), x, other)


rule(*spelled("max"))(partial(extreme, torch.argmax, torch.ge))
rule(*spelled("min"))(partial(extreme, torch.argmin, torch.le))
rule(*spelled("maximum", "fmax"))(partial(extreme_of_two, torch.ge))
rule(*spelled("minimum", "fmin"))(partial(extreme_of_two, torch.le))


@rule(*spelled("topk"))
def topk(
    x: Moments, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Moments, Tensor]:
    """The entries with the largest means, with their variances."""
    mean, index = x.mean.topk(k, dim, largest, sorted)
    return Entries(Moments(mean, x.var.gather(dim, index)), index)


@rule(*spelled("sort"))
def sort(
    x: Moments, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> tuple[Moments, Tensor]:
    """By the means."""
    mean, index = torch.sort(x.mean, stable=stable, dim=dim, descending=descending)
    return Entries(Moments(mean, x.var.gather(dim, index)), index)
