"""Batches as a user hands them in: inputs, (input, target) pairs or mappings."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.checks import as_tensor
from bayesify.moments import Moments
from bayesify.torch_internals import pytree

TARGETS = ("labels", "label", "target", "targets")


class PerMember(NamedTuple):
    """A batch of its own, or an input or a target, for every member of an ensemble."""

    each: list[Any]


def for_members(value: Any, num_members: int) -> list[Any]:
    """What every member gets: its own, or all the same."""
    return value.each if isinstance(value, PerMember) else [value] * num_members


def first_of(value: Any) -> Any:
    """What the first member gets."""
    return for_members(value, 1)[0]


def check_loader(loader: Any, argument: str) -> None:
    """Raise where `loader` is nothing to iterate over."""
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(f"{argument}={loader!r} must give batches, (input, target) pairs: e.g. a DataLoader")


def inputs_of(batch: Any) -> Any:
    """The input: of pairs the first, of dicts all but the target."""
    if isinstance(batch, PerMember):
        return PerMember([inputs_of(one) for one in batch.each])
    if isinstance(batch, Moments):
        return batch
    if isinstance(batch, list | tuple):
        return batch[0]
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if key not in TARGETS}
    return batch


def target_of(batch: Any) -> Any:
    """The target, a tensor: of pairs the second, of dicts the entry under one of `TARGETS`."""
    if isinstance(batch, PerMember):
        return PerMember([target_of(one) for one in batch.each])
    if isinstance(batch, Mapping):
        for key in TARGETS:
            if key in batch:
                return as_tensor(batch[key], f"batch[{key!r}]")
        raise ValueError(f"the batch is a dict without 'labels' (keys: {', '.join(map(str, batch))})")
    if not isinstance(batch, list | tuple) or isinstance(batch, Moments) or len(batch) < 2:
        raise ValueError(f"the loader gives {type(batch).__name__}: (input, target) pairs are needed")
    if len(batch) > 2:
        raise ValueError(
            f"the loader gives {len(batch)} things at a time: (input, target) pairs are needed. Several inputs are "
            f"one tuple, ((a, b), target); sample weights go to model.loss in a loop of your own"
        )
    return as_tensor(batch[1], "the target of a batch")


def inputs_for(model: Any, batch: Any) -> Any:
    """The input of a loader's batch as `model` takes it: on its device, float32 and float64 in the precision of its
    weights."""
    first = next(model.parameters())
    return to_device(inputs_of(batch), first.device, first.dtype)


def first_examples(value: Any, most: int) -> tuple[Any, int]:
    """`value` with at most so many examples in all of its tensors, and how many there are.

    Where their first dimensions differ, examples need not stand first, and all is left whole.
    """
    sizes = [len(t) for t in pytree.tree_leaves(value) if isinstance(t, Tensor) and t.dim()]
    if len(set(sizes)) > 1:
        return value, max(sizes)
    cut = pytree.tree_map(lambda t: t[:most] if isinstance(t, Tensor) and t.dim() else t, value)
    return cut, min(sizes[0], most) if sizes else 1


def beside(module: nn.Module, value: Any) -> Any:
    """Every tensor of `value` on the device of `module`'s parameters, float32 and float64 in their precision."""
    first = next(module.parameters(), None)
    return value if first is None else to_device(value, first.device, first.dtype)


def device_of(value: Any) -> torch.device | None:
    """Where the first tensor of `value` is."""
    if isinstance(value, Tensor):
        return value.device
    return next((leaf.device for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)), None)


def to_device(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Every tensor in a batch on `device`, those of float32 and float64 in `dtype` where one is given."""
    if isinstance(value, Tensor):
        wide = value.dtype in (torch.float32, torch.float64)
        return value.to(device, dtype if wide else None, non_blocking=True)
    if isinstance(value, list | tuple):
        moved = [to_device(v, device, dtype) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    if isinstance(value, Mapping):
        return {k: to_device(v, device, dtype) for k, v in value.items()}
    return value
