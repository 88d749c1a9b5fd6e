"""Entries that go to other places, and sums and means of those that go to one place, as graph networks take them;
places are deterministic."""

from typing import Any

import torch
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule, spelled
from bayesify.moments.values import Moments, as_moments


@rule(*spelled("index_add", "index_add_"), complex_too=True)
def index_add(x: Any, dim: int, index: Tensor, source: Any, *, alpha: float = 1) -> Moments:
    """x_i + α Σ y_j over the j that go to i:  Var = Var x_i + α² Σ Var y_j."""
    (mean, var), (y, y_var) = as_moments(x), as_moments(source)
    total = mean.index_add(dim, index, y, alpha=alpha)
    return Moments(total, var.index_add(dim, index, y_var, alpha=alpha**2))


@rule(*spelled("scatter_add", "scatter_add_"), complex_too=True)
def scatter_add(x: Any, dim: int, index: Tensor, src: Any) -> Moments:
    """As `index_add`, with a place for every entry."""
    (mean, var), (y, y_var) = as_moments(x), as_moments(src)
    return Moments(mean.scatter_add(dim, index, y), var.scatter_add(dim, index, y_var))


@rule(*spelled("scatter_reduce", "scatter_reduce_"))
def scatter_reduce(
    x: Any, dim: int, index: Tensor, src: Any, reduce: str, *, include_self: bool = True
) -> Moments:
    """Sums add variances; the variance of a mean of n entries is the mean of their variances over n.

    The extremes have that of the entry whose mean is the extreme one (of several equal ones, the larger)."""
    if reduce == "prod":
        raise NotImplementedError(not_covered(torch.scatter_reduce, f"reduce={reduce!r}"))
    (mean, var), (y, y_var) = as_moments(x), as_moments(src)
    if reduce in ("amax", "amin"):
        extreme = mean.scatter_reduce(dim, index, y, reduce, include_self=include_self)
        var = torch.where(extreme == mean, var, 0.0)
        used = tuple(slice(n) for n in index.shape)  # of y, entries past the index take no part
        chosen = torch.where(extreme.gather(dim, index) == y[used], y_var[used], 0.0)
        return Moments(extreme, var.scatter_reduce(dim, index, chosen, "amax", include_self=include_self))

    def reduced(values: Tensor, sources: Tensor, how: str = reduce) -> Tensor:
        return values.scatter_reduce(dim, index, sources, how, include_self=include_self)

    var = reduced(var, y_var)
    if reduce == "mean":
        var = var / reduced(torch.ones_like(mean), torch.ones_like(y), "sum")
    return Moments(reduced(mean, y), var)


@rule(*spelled("scatter", "scatter_"))
def scatter(
    x: Any, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Moments:
    """Entries put in their places; a number has no variance."""
    if reduce is not None:
        raise NotImplementedError(not_covered(torch.scatter, f"reduce={reduce!r}"))
    mean, var = as_moments(x)
    src = value if src is None else src
    new, new_var = as_moments(src) if isinstance(src, Moments | Tensor) else (src, 0.0)
    return Moments(mean.scatter(dim, index, new), var.scatter(dim, index, new_var))


@rule(*spelled("index_copy", "index_copy_"))
def index_copy(x: Any, dim: int, index: Tensor, source: Any) -> Moments:
    """Copied entries bring their variances."""
    (mean, var), (new, new_var) = as_moments(x), as_moments(source)
    return Moments(mean.index_copy(dim, index, new), var.index_copy(dim, index, new_var))


@rule(*spelled("index_fill", "index_fill_"))
def index_fill(x: Moments, dim: int, index: Tensor, value: Any) -> Moments:
    """Filled entries have no variance."""
    return Moments(x.mean.index_fill(dim, index, value), x.var.index_fill(dim, index, 0.0))
