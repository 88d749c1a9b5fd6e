"""Stored draws on their way to the network: each as one row of bytes, copied while the one before is in use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import cycle
from typing import Any, TypeVar

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.posteriors.chain.draw_store import Weights
from bayesify.rows import own_memory

ALIGN = 512  # bytes: where CUDA's allocator starts a tensor
Item = TypeVar("Item")
Result = TypeVar("Result")
Arrival = Callable[[], Weights]  # waits for draws: (draws, *shape)


class Upload:
    """Brings draws to the device and the dtypes of `like`. A row holds all tensors of a draw, one after the other."""

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        self.like = like
        self.device = next(iter(like.values())).device
        self.layout: list[tuple[str, torch.dtype, tuple[int, ...], tuple[int, ...], int]] = []
        self.size = 0
        for name, w in like.items():
            strides = torch.empty(w.shape, device="meta").stride()
            self.layout.append((name, w.dtype, tuple(w.shape), strides, self.size // w.element_size()))
            self.size += -(-w.numel() * w.element_size() // ALIGN) * ALIGN
        self.stages = cycle([Stage(self), Stage(self)]) if self.device.type == "cuda" else None

    def start(self, most: int, draws: Iterable[Weights]) -> tuple[int, Arrival]:
        """Sets off with `draws`, at most so many, one after the other; returns their number, too."""
        n = 0
        if self.stages is None:
            stacked = {name: own_memory((most, *w.shape), w.dtype) for name, w in self.like.items()}
            for n, draw in enumerate(draws, 1):
                for name, rows in stacked.items():
                    rows[n - 1].copy_(draw[name])
            return n, lambda: {name: rows[:n].to(self.device) for name, rows in stacked.items()}
        stream = _stream(self.device)
        with torch.cuda.stream(stream):
            rows = self.rows(most, self.device)
            for n, draw in enumerate(draws, 1):
                next(self.stages).send(draw, rows[n - 1 : n])
            rows = rows[:n]
            arrived = stream.record_event()

        def arrive() -> Weights:
            user = torch.cuda.current_stream(self.device)
            user.wait_event(arrived)
            rows.record_stream(user)
            return {name: view.contiguous() for name, view in self.views(rows).items()}

        return n, arrive

    def rows(self, n: int, device: torch.device, pinned: bool = False) -> Tensor:
        """Room for n draws: (n, size) bytes."""
        return torch.empty((n, self.size), dtype=torch.uint8, device=device, pin_memory=pinned)

    def views(self, rows: Tensor) -> Weights:
        """Rows (n, size), which fill their memory, as tensors (n, *shape)."""
        typed = {dtype: rows.view(dtype) for dtype in {part[1] for part in self.layout}}
        steps = {dtype: (t.shape[1],) for dtype, t in typed.items()}
        n = (len(rows),)
        return {
            name: typed[dtype].as_strided(n + shape, steps[dtype] + strides, offset)
            for name, dtype, shape, strides, offset in self.layout
        }


class Stage:
    """A row in page-locked memory, from which the GPU copies by itself."""

    def __init__(self, upload: Upload) -> None:
        self.row = upload.rows(1, torch.device("cpu"), pinned=True)
        self.views = {name: view[0] for name, view in upload.views(self.row).items()}
        self.left: Any = None  # the event after which the row may be used again

    def send(self, draw: Weights, row: Tensor) -> None:
        """Copy a draw to this row and on to the device's, once the copy before has left."""
        if self.left is not None:
            self.left.synchronize()
        internals.foreach_copy_(list(self.views.values()), [draw[name] for name in self.views])
        row.copy_(self.row, non_blocking=True)
        self.left = torch.cuda.current_stream(row.device).record_event()


@cache
def _stream(device: torch.device) -> Any:
    """One for all copies: every stream keeps the memory that it has used."""
    return torch.cuda.Stream(device)


def prefetched(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function(item)` for all items, by a thread that is one item ahead."""
    with ThreadPoolExecutor(1) as pool:
        next_one: Future[Result] | None = None
        for item in items:
            next_one, ready = pool.submit(function, item), next_one
            if ready is not None:
                yield ready.result()
        if next_one is not None:
            yield next_one.result()
