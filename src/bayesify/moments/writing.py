"""Views of random tensors: writing into one changes what it is a view of, and all other views of that.

A rule gives new moments, it does not write into old ones. So a carrier keeps its moments in a storage, and that of
a view knows whose part it is: what is written there is handed on, and read anew where it was written elsewhere.
"""

from collections.abc import Callable
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import compiling

#: operations that may return a view -> whether they return nothing else
VIEWS: dict[Any, bool] = {}
#: operations that make a tensor a view of itself, in place -> those that return the view
RESHAPES: dict[Any, Any] = {}


class Storage:
    """Holds moments: its own, or the `part` of those of a `whole`."""

    def __init__(
        self, held: Any, whole: "Storage | None" = None, part: Callable[[Tensor], Any] | None = None
    ) -> None:
        self.held = held
        self.whole = whole
        self.part = part
        self.num_writes = 0
        self.seen = self.writes()

    def writes(self) -> int:
        """How often any part of the whole has been written."""
        return self.num_writes if self.whole is None else self.whole.writes()

    def read(self) -> Any:
        """The moments, anew where another view was written."""
        if self.whole is not None and self.seen != self.writes():
            whole = _by_entry(self.whole.read())
            self.held = type(whole)(self.part(whole.mean), self.part(whole.var))  # type: ignore[misc]
            self.seen = self.writes()
        return self.held

    def write(self, held: Any) -> None:
        """Put new moments here, and into the whole."""
        if self.whole is None:
            self.num_writes += 1
        else:
            self.whole.write(_put(_by_entry(self.whole.read()), self.part, _by_entry(held)))
            self.seen = self.writes()
        self.held = held


def _by_entry(held: Any) -> Any:
    """Moments of each entry, also of what softmax gave."""
    return held.moments() if hasattr(held, "moments") else held


def _put(whole: Any, part: Any, held: Any) -> Any:
    """`whole` with `held` in its part. The variance is laid out like the mean, so that `part` is a view of it too."""
    mean = whole.mean.clone()
    var = torch.empty_like(mean, dtype=whole.var.dtype).copy_(whole.var)
    part(mean).copy_(held.mean)
    part(var).copy_(held.var)
    return type(whole)(mean, var)


def join(views: Any, whole: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Carriers `views` = func(whole, *args): those that are views get a storage that is a part of the whole's."""
    each = enumerate(views) if isinstance(views, tuple) else [(None, views)]
    for i, view in each:
        if _is_view(func, args, view.moments.mean, whole.moments.mean):
            view.storage = Storage(view.moments, whole.storage, applied(func, args, kwargs, i))


def applied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], i: int | None = None) -> Any:
    """x -> func(x, *args, **kwargs), or entry `i` of what that returns."""

    def part(x: Tensor) -> Any:
        result = func(x, *args, **kwargs)
        return result if i is None else result[i]

    return part


def _is_view(func: Any, args: tuple[Any, ...], result: Tensor, x: Tensor) -> bool:
    """Does func(x, *args) show numbers of `x`? In traced code, where memory has no address, `func` alone decides."""
    if VIEWS[func]:
        return func is not Tensor.__getitem__ or _only_cuts(args[0])
    return not compiling() and (result is x or _share_memory(result, x))


def _share_memory(a: Tensor, b: Tensor) -> bool:
    try:
        places = {t.untyped_storage().data_ptr() for t in (a, b)}
    except NotImplementedError:  # inside torch.func
        return False
    return len(places) == 1 and 0 not in places


def _only_cuts(key: Any) -> bool:
    """Indices of numbers and slices give a view, those of tensors and lists a copy."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(
        k is None or (isinstance(k, int | slice | EllipsisType) and not isinstance(k, bool)) for k in keys
    )
