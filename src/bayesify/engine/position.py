"""Going through a loader, from the start of an epoch or from the middle of one."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from torch.utils.data import DataLoader, IterableDataset


@runtime_checkable
class Seekable(Protocol):
    """A loader that can begin anywhere, such as `bayesify.data.Loader`."""

    def set_epoch(self, epoch: int) -> None: ...

    def start_at(self, batch_index: int) -> None: ...


def can_resume_inside(loader: Any) -> bool:
    """Iterable data sets have no order of their own to come back to."""
    return not (isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset))


def batches(loader: Iterable[Any], epoch: int, start: int) -> Iterator[Any]:
    """The batches of one epoch from batch `start` on.

    A seekable loader jumps there. Any other is read and thrown away up to there, so the caller must
    have restored the random state of the epoch's start, and restores the present one afterwards.
    """
    if isinstance(loader, Seekable):
        loader.set_epoch(epoch)
        loader.start_at(start)
        return iter(loader)
    set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if set_epoch is not None:  # DistributedSampler
        set_epoch(epoch)
    iterator = iter(loader)
    for _ in islice(iterator, start):
        pass
    return iterator


def number_of_examples(loader: Any) -> int | None:
    """How many training examples a loader goes through, over all ranks; None where nobody can know."""
    if hasattr(loader, "num_data"):
        return int(loader.num_data)
    dataset = getattr(loader, "dataset", None)
    return len(dataset) if dataset is not None and hasattr(dataset, "__len__") else None


def number_of_batches(loader: Any) -> int | None:
    """Batches in an epoch; None for a stream, which does not know its end."""
    try:
        return len(loader)
    except TypeError:
        return None
