"""The data of a run, told from others: what checkpoints hold of a loader."""

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from bayesify.engine.randomness import random_state, restore_random_state, seed_everything


def fingerprint_of(loader: Any) -> dict[str, Any]:
    """Facts about the data behind a loader, as plain data; empty for a stream, of which nobody knows.

    A loader with a method `fingerprint`, as `bayesify.data.Loader`, is asked. Of a list of batches some are looked at,
    of a map-style data set some examples: read as the loader would (in a worker, where it has any), and the random
    numbers are put back. Examples that are others each time they are read, and those that cannot be read one by one,
    are left out: then only the number of examples is compared.
    """
    from bayesify.data.fingerprint import digest, spread  # a room that few programs need

    if callable(own := getattr(loader, "fingerprint", None)):
        return own()
    if isinstance(loader, list | tuple):
        return {"num_batches": len(loader), "batches": digest([loader[i] for i in spread(len(loader))])}
    dataset = getattr(loader, "dataset", None)
    if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return {}
    facts: dict[str, Any] = {"num_data": len(dataset)}
    before = random_state()
    try:
        items = [digest(item) for item in _read(loader, dataset, 2 * spread(len(dataset)))]
    except Exception:  # code of the user's, which may want other keys, or a process of its own
        return facts
    finally:
        restore_random_state(*before)
    first, again = items[: len(items) // 2], items[len(items) // 2 :]
    return {**facts, "examples": digest(first)} if first == again else facts


def _read(loader: Any, dataset: Any, index: list[int]) -> Any:
    """The examples at `index`."""
    chosen = _Chosen(dataset, index)
    if not getattr(loader, "num_workers", 0):
        return [chosen[i] for i in range(len(chosen))]
    return DataLoader(
        chosen,
        batch_size=None,
        num_workers=1,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator(),  # the worker's seed must not come from the global generator
    )


class _Chosen(Dataset[Any]):
    """Examples of a data set, each under random numbers of its own: augmentations come out the same."""

    def __init__(self, dataset: Any, index: list[int]) -> None:
        self.dataset, self.index = dataset, index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Any:
        seed_everything(self.index[i])
        return self.dataset[self.index[i]]
