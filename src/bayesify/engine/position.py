"""Going through a loader, from the start of an epoch or from the middle of one."""

import math
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from bayesify.checks import check_num_data

MOST_APART = (
    1.2  # between num_data and what a loader has: augmented or held-out examples may make some difference
)
SEEDS = 1_000_003  # from one seed of an order to the next: samplers of torch add the epoch to theirs


def can_jump(loader: Any) -> bool:
    """Can the loader begin anywhere, as `bayesify.data.Loader` does? Wrappers that pass attributes on count, too."""
    return hasattr(loader, "set_epoch") and hasattr(loader, "start_at")


def can_resume_inside(loader: Any) -> bool:
    """Iterable data sets have no order of their own to come back to."""
    return not (isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset))


def check_second_epoch(loader: Any, argument: str, epochs: int) -> None:
    """Raise where a loader is gone after one epoch, and there are more."""
    if epochs > 1 and isinstance(loader, Iterator):
        raise ValueError(
            f"{argument}={type(loader).__name__} is an iterator, which has no second epoch: give a DataLoader, or a "
            f"list of its batches"
        )


def order_generator(loader: Any) -> Generator | None:
    """What a loader's order is drawn from, where that is not torch's own: the generator of its sampler, or its own."""
    samplers = (
        getattr(getattr(loader, "batch_sampler", None), "sampler", None),
        getattr(loader, "sampler", None),
    )
    found = (getattr(each, "generator", None) for each in (*samplers, loader))
    return next((each for each in found if isinstance(each, Generator)), None)


def batches(loader: Any, epoch: int, start: int, end: int | None = None) -> Iterator[Any]:
    """The batches of one epoch from batch `start` on; of a stream up to batch `end`.

    A loader that can jump does. Any other is read and thrown away up to there, so the caller must
    have restored the random state of the epoch's start, and restores the present one afterwards.
    """
    if can_jump(loader):
        loader.set_epoch(epoch)
        loader.start_at(start)
        return iter(loader)
    set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if set_epoch is not None:  # DistributedSampler
        set_epoch(epoch)
    iterator = iter(loader)
    for _ in islice(iterator, start):
        pass
    return iterator if end is None else islice(iterator, end - start)


def number_of_examples(loader: Any) -> int | None:
    """How many training examples a loader goes through, over all ranks; None where nobody can know."""
    if hasattr(loader, "num_data"):
        return int(loader.num_data)
    dataset = getattr(loader, "dataset", None)
    return len(dataset) if dataset is not None and hasattr(dataset, "__len__") else None


def agree_on_num_data(model: Any, found: int | None) -> None:
    """`model.num_data` from the loader where nobody gave it; a warning where the two contradict each other."""
    if model.num_data is None:
        model.num_data = found
    if model.num_data is None:
        return
    check_num_data(model.num_data)
    if found and not 1 / MOST_APART <= model.num_data / found <= MOST_APART:
        times = found / model.num_data
        effect = f"{times:.3g} times too strong" if times > 1 else f"{1 / times:.3g} times too weak"
        warnings.warn(
            f"num_data={model.num_data}, but the loader goes through {found} examples: the prior (the KL) counts "
            f"{effect} beside them, and uncertainty comes out accordingly. Leave num_data out, or set it to {found}; "
            f"if the examples are a part or repeats of others on purpose, ignore this",
            stacklevel=2,
        )


def number_of_batches(loader: Any) -> float:
    """Of an epoch; infinite for a stream, which does not know its end."""
    try:
        return len(loader)
    except TypeError:
        return math.inf


def number_of_steps(loader: Any, accumulate: int, given: int | None) -> int | None:
    """Optimiser steps in an epoch: `given` for a stream, which does not know its end, and None where nobody does."""
    num_batches = number_of_batches(loader)
    if num_batches == math.inf:
        return given
    if num_batches == 0:
        raise ValueError("train_loader is empty: it gives no batch (drop_last with too few examples?)")
    steps = math.ceil(num_batches / accumulate)
    if given not in (None, steps):
        raise ValueError(
            f"steps_per_epoch={given!r} is for loaders without a length; train_loader has {num_batches} batches, "
            f"which are {steps} steps: leave steps_per_epoch out"
        )
    return steps


def examples_per_step(loader: Any, steps: int | None) -> float | None:
    """The mean over an epoch of so many steps, on this rank; None for loaders that do not say how they cut it."""
    size, drop_last = (getattr(loader, name, None) for name in ("batch_size", "drop_last"))
    if steps is None or size is None or drop_last is None or not can_resume_inside(loader):  # a stream
        return None
    if drop_last:
        return len(loader) * size / steps
    if hasattr(loader, "num_data") and hasattr(loader, "world_size"):
        return math.ceil(loader.num_data / loader.world_size) / steps
    sampler: Any = getattr(loader, "sampler", None)  # of torch's loaders, and of what is wrapped around one
    return len(sampler) / steps if hasattr(sampler, "__len__") else None


def share_of_rank(loader: Any, fabric: Any, seed: int | None = None) -> Any:
    """The loader that gives this process its share of every batch, in the order of this seed where it had none."""
    if hasattr(loader, "world_size") and hasattr(loader, "rank"):
        loader.rank, loader.world_size = fabric.global_rank, fabric.world_size
    elif fabric.world_size > 1:
        wrapped = fabric.setup_dataloaders(loader, move_to_device=False)
        shared = getattr(wrapped, "_dataloader", wrapped)  # the wrapper counts epochs by itself
        if seed is not None and not isinstance(getattr(loader, "sampler", None), DistributedSampler):
            shared.sampler.seed = seed * SEEDS
        return shared
    return loader
