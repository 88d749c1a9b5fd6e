"""Checkpoints: everything a run needs to go on bit for bit, in one safetensors file each."""

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify.atomic import checked_tensors, read_header, read_tensors, write_tensors
from bayesify.checks import Count, NotNegativeCount, misfit
from bayesify.samplers import Sampler
from bayesify.samplers.variational_newton import VariationalNewton

FORMAT = 1
NAME = "step-{:09d}.safetensors"
#: what a `RunState` puts into a checkpoint, and of what kind it is
KINDS: dict[str, Any] = {
    **dict.fromkeys(("epoch", "batch", "step", "seen", "bad_epochs"), NotNegativeCount),
    **dict.fromkeys(("sums", "random", "epoch_random"), list),
    "history": list[Mapping[str, Any]],
    **dict.fromkeys(("model", "optimizer"), dict),
    **dict.fromkeys(("schedule", "warmup", "ema"), dict | None),
    "best": Real | None,
    "epoch_generator": Tensor | None,
    "clipped?": NotNegativeCount,
    **dict.fromkeys(("num_steps?", "steps?"), Count),
    **dict.fromkeys(("begun?", "past_steps?", "past_epochs?"), NotNegativeCount),
    **dict.fromkeys(("data?", "settings?"), dict),
}
#: what samplers and Adafactor remember in other shapes
NOT_BY_ENTRY = ("pull_blocks", "common_sums", "axes", "axes_moments", "axes_count", "row_var", "col_var")
#: the numbers that optimisers of torch.optim remember one of for each parameter
SINGLE = ("step ", "mu ", "eta ", "mu_product ")
#: path -> (when it was looked at, is it sound?) of checkpoints that this process wrote, read or checked
_seen: dict[Path, tuple[tuple[int, int], bool]] = {}
#: the errors of a state that is not built as it was written
STRUCTURAL = (KeyError, TypeError, IndexError, AttributeError, StopIteration, RecursionError)


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
    """Write `step-<step>.safetensors` and forget all but the newest `keep_last` sound ones.

    A damaged one is not counted, nor deleted: it is set aside under another name, step-….safetensors.damaged.
    Every rank of a sharded run calls it (flattening gathers the shards); only one with `write` set writes.
    """
    tensors: dict[str, Tensor] = {}
    plain = flatten(state, "state", tensors)
    if not write:
        return
    path, kept = folder / NAME.format(step), 0
    write_tensors(path, tensors, {"checkpoint": FORMAT, "state": plain})
    remember(path, sound=True)
    for _, each in find_checkpoints(folder):
        if kept == keep_last:
            each.unlink(missing_ok=True)
        elif _is_sound(each):
            kept += 1
        else:
            each.replace(each.with_name(f"{each.name}.damaged"))


def remember(path: Path, sound: bool) -> None:
    """Whether a checkpoint is sound, as it is now."""
    found = path.stat()
    _seen[path] = (found.st_mtime_ns, found.st_size), sound


def _is_sound(path: Path) -> bool:
    """Is it? Read only where this process has not seen it."""
    try:
        found = path.stat()
    except OSError:  # a link that leads nowhere
        return False
    stamp, sound = _seen.get(path, (None, False))
    if stamp != (found.st_mtime_ns, found.st_size):
        try:
            sound = all(True for _ in checked_tensors(path, read_header(path)))
        except (ValueError, OSError):
            sound = False
        remember(path, sound)
    return sound


def find_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every checkpoint, newest first."""
    names = ((re.fullmatch(r"step-(\d+)\.safetensors", path.name), path) for path in folder.glob("step-*"))
    return sorted(((int(match[1]), path) for match, path in names if match), reverse=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in one checkpoint; a ValueError says what is wrong with it."""
    header = read_header(path)
    if "state" not in header:
        raise ValueError(f"{path} is not a checkpoint")
    if header.get("checkpoint") not in range(FORMAT + 1):
        raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify to go on")
    tensors = read_tensors(path, header)
    try:
        state = unflatten(header["state"], tensors)
        wrong = misfit(state, KINDS, "state")
        if wrong is not None:
            raise TypeError(f"{wrong} is missing, or cannot be so")
        _check_counts(state, path)
    except (*STRUCTURAL, ValueError) as error:
        raise ValueError(f"{path} is damaged: its structure has changed ({_words(error)})") from None
    return state


def _check_counts(state: Mapping[str, Any], path: Path) -> None:
    """Numbers that say the same thing twice do."""
    ranks = {len(state[name]) for name in ("sums", "random", "epoch_random")}
    if len(ranks) > 1 or 0 in ranks:
        raise TypeError("the processes are not as many everywhere")
    if state["epoch"] != len(state["history"]):
        raise TypeError(f"epoch {state['epoch']} after {len(state['history'])} rows of history")
    for of, names in (("step", ("begun", "past_steps")), ("epoch", ("past_epochs",))):
        if any(state.get(name, 0) > state[of] for name in names):
            raise TypeError(f"{' or '.join(names)} is beyond {of} {state[of]}")
    if state["best"] is not None and math.isnan(state["best"]):
        raise TypeError("the best value is none")
    if path.name != NAME.format(state["step"]):
        raise TypeError(f"step {state['step']} is not that of the file")


def sound_checkpoints(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The checkpoints that can be read, newest first; damaged ones are named in warnings."""
    for _, path in find_checkpoints(folder):
        try:
            yield path, read_checkpoint(path)
        except (ValueError, OSError) as error:
            give_up(path, error)


def give_up(path: Path, error: Exception) -> None:
    """Say that a checkpoint is damaged; it will not count among those to keep."""
    if not isinstance(error, OSError):  # which may pass
        remember(path, sound=False)
    text = str(error) if isinstance(error, ValueError | OSError) else f"{path} is damaged ({_words(error)})"
    warnings.warn(f"{text}: trying the checkpoint before it", stacklevel=3)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


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
    ours = isinstance(optimizer, Sampler | VariationalNewton)
    known = ours or type(optimizer).__module__.startswith("torch.optim.")
    placed: dict[int, dict[str, Any]] = {}
    for index, entry in state["state"].items():
        p, placed[index] = parameters[index], {}
        for key, value in entry.items():
            if known and isinstance(value, Tensor) and key not in NOT_BY_ENTRY:
                _check_state(f"{key} of parameter {index}", value, p)
            like = isinstance(value, Tensor) and value.shape == p.shape
            placed[index][key] = load_like(p, value) if like else value
    return {**state, "state": placed}


def _check_state(name: str, value: Tensor, parameter: Tensor) -> None:
    """What an optimiser remembers of a parameter is of its shape and finite, but for single numbers; steps are
    counted."""
    counts = name.startswith("step ")
    shape = () if name.startswith(SINGLE) else parameter.shape
    right = value.shape == shape and value.is_floating_point() and bool(value.isfinite().all())
    if not right or (counts and value < 0):
        raise TypeError(f"{name} is {tuple(value.shape)} of {value.dtype}, or not finite")
