"""What a loader's batch holds: (input, target) pairs, or dicts with a target under a usual name."""

from typing import Any

import torch
from torch import Tensor

TARGETS = ("labels", "label", "target", "targets")


def inputs_of(batch: Any) -> Any:
    """The input: of pairs the first, of dicts all but the target."""
    if isinstance(batch, list | tuple):
        return batch[0]
    if isinstance(batch, dict):
        return {key: value for key, value in batch.items() if key not in TARGETS}
    return batch


def target_of(batch: Any) -> Tensor:
    """The target: of pairs the second, of dicts the entry under one of `TARGETS`."""
    if isinstance(batch, dict):
        for key in TARGETS:
            if key in batch:
                return batch[key]
        raise ValueError(f"the batch is a dict without 'labels' (keys: {', '.join(map(str, batch))})")
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        raise ValueError(f"the loader gives {type(batch).__name__}: (input, target) pairs are needed")
    return batch[1]


def to_device(value: Any, device: torch.device) -> Any:
    """Every tensor in a batch on `device`."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(v, device) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(v, device) for v in value)
    if isinstance(value, dict):
        return {k: to_device(v, device) for k, v in value.items()}
    return value
