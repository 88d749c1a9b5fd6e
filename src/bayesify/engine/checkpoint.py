"""Checkpoints: everything a run needs to go on bit for bit, in one safetensors file each."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.atomic import read_header, read_tensors, write_tensors
from bayesify.files.differences import differences

FORMAT = 1


def flatten(value: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """Plain data of a nested state, its tensors moved to `tensors` and replaced by {"tensor": name}."""
    if isinstance(value, Tensor):
        tensors[prefix] = value.full_tensor() if hasattr(value, "full_tensor") else value
        return {"tensor": prefix}
    if isinstance(value, Mapping):
        items = [[key, flatten(item, f"{prefix}.{key}", tensors)] for key, item in value.items()]
        return {"map": items}  # as pairs: JSON would turn integer keys into strings
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [flatten(item, f"{prefix}.{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{prefix} is a {type(value).__name__}: a checkpoint holds tensors and plain data only")


def unflatten(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `flatten`."""
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind == "tensor":
        return tensors[content]
    if kind == "map":
        return {key: unflatten(item, tensors) for key, item in content}
    items = [unflatten(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


def write_checkpoint(folder: Path, step: int, state: Mapping[str, Any], keep_last: int, write: bool) -> None:
    """Write `step-<step>.safetensors` and forget all but the newest `keep_last`.

    Every rank of a sharded run calls it (flattening gathers the shards); only one with `write` set writes.
    """
    tensors: dict[str, Tensor] = {}
    plain = flatten(state, "state", tensors)
    if not write:
        return
    write_tensors(folder / f"step-{step:09d}.safetensors", tensors, {"checkpoint": FORMAT, "state": plain})
    for _, old in find_checkpoints(folder)[keep_last:]:
        old.unlink(missing_ok=True)


def find_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every checkpoint, newest first."""
    names = ((re.fullmatch(r"step-(\d+)\.safetensors", path.name), path) for path in folder.glob("step-*"))
    return sorted(((int(match[1]), path) for match, path in names if match), reverse=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in one checkpoint; a ValueError says what is wrong with it."""
    header = read_header(path)
    if header.get("checkpoint", 0) > FORMAT:
        raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify to go on")
    if "state" not in header:
        raise ValueError(f"{path} is not a checkpoint")
    return unflatten(header["state"], read_tensors(path, header))


def read_newest(folder: Path) -> dict[str, Any] | None:
    """The newest sound checkpoint; a damaged one is named and the one before it is used."""
    for _, path in find_checkpoints(folder):
        try:
            return read_checkpoint(path)
        except (ValueError, OSError) as error:
            warnings.warn(f"{error}: trying the checkpoint before it", stacklevel=2)
    return None


def load_like(target: Tensor, value: Tensor) -> Tensor:
    """`value` on the device, and in the sharding, of `target`."""
    if hasattr(target, "device_mesh"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(target, DTensor)
        return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    return value.to(target.device)


def optimizer_state(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """A stored optimiser state, with every tensor of a parameter's shape placed like that parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    placed = {
        index: {
            key: load_like(parameters[index], value)
            if isinstance(value, Tensor) and value.shape == parameters[index].shape
            else value
            for key, value in entry.items()
        }
        for index, entry in state["state"].items()
    }
    return {**state, "state": placed}


def check_same_network(model: nn.Module, stored: Mapping[str, Tensor], folder: Path) -> None:
    """Raise where parameters or buffers are missing, unexpected or of another shape, with the first few of them."""
    state = model.state_dict()
    mine = {name: t for name, t in [*model.named_parameters(), *model.named_buffers()] if name in state}
    # not the draws of a chain
    theirs = {name: t for name, t in stored.items() if name in mine or name not in state}
    found = differences(
        mine,
        theirs,
        only_mine="it lacks ",
        only_stored="it has also ",
        shapes="{name} is {stored} there and {mine} here",
        num_named=3,
    )
    if found:
        raise ValueError(
            f"the run in {folder} is of another network or method: {found}. Resume it with the same, or choose "
            f"another folder"
        )
