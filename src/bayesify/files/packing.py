"""Tensors of which only some entries matter, as files hold them: the places of those entries and their values."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from bayesify.checks import Range
from bayesify.files.differences import Shape

#: what `pack` says about the tensors that are packed
HOW = {"*": {"shape": list[Annotated[int, Range(least=0, most=2**48)]], "places": str, "value?": float}}
INT32 = 2**31  # tensors of fewer entries have places of four bytes


def pack(
    tensors: Mapping[str, Tensor], idle: Iterable[tuple[Tensor, Tensor, float]]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`tensors` with places and values for those that idle in part, where that is smaller; and how to put them back.

    idle: tensors, found by their memory, with the mask of entries that may be read back as a value, and that value.
          Of other tensors of two or more dimensions those entries idle that are zero.

    Tensors with the same places share them; values that are all equal are stored once.
    """
    masks = {tensor.data_ptr(): (mask, value) for tensor, mask, value in idle if tensor.numel()}
    packed: dict[str, Tensor] = {}
    places: dict[str, Tensor] = {}
    how: dict[str, Any] = {}
    first: dict[tuple[Any, ...], str] = {}  # by memory: tied tensors are packed together, and stay tied
    for name, tensor in tensors.items():
        packed[name] = tensor
        tied = first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype), name)
        if tensor.numel() and tied in how:
            packed[name], how[name] = packed[tied], how[tied]
            continue
        mask, value = masks.get(tensor.data_ptr(), (None, 0.0)) if tensor.numel() else (None, 0.0)
        if mask is None and tensor.dim() > 1:
            mask = _zeros(tensor)
        if mask is None or mask.shape != tensor.shape or not mask.any():
            continue
        kept = (~mask).flatten().nonzero().flatten()
        key = next((k for k, other in places.items() if torch.equal(other, kept)), None)
        values = tensor.flatten()[kept]
        if len(values) and (values == values[0]).all():
            values = values[:1]
        width = 4 if tensor.numel() < INT32 else 8
        size = values.numel() * tensor.element_size() + (0 if key else len(kept) * width)
        if size < tensor.numel() * tensor.element_size():
            key = key or f"places.{name}"
            places[key] = kept
            packed[key] = kept.to(torch.int32 if width == 4 else torch.int64)
            packed[name] = values
            how[name] = {"shape": list(tensor.shape), "places": key, "value": value}
    return packed, how


def _zeros(tensor: Tensor) -> Tensor:
    """Entries that are zero, which −0 is not: what is read back is the same bit for bit."""
    zero = tensor == 0
    return zero & ~tensor.signbit() if tensor.is_floating_point() else zero


def dense_shapes(shapes: Mapping[str, Shape], how: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes that the tensors of a file have after `unpack`."""
    places = {entry["places"] for entry in how.values()}
    plain = {name: shape for name, shape in shapes.items() if name not in places}
    return {**plain, **{name: tuple(entry["shape"]) for name, entry in how.items()}}


def unpack(tensors: Mapping[str, Tensor], how: Mapping[str, Any], most: float) -> dict[str, Tensor]:
    """The tensors that `pack` took, with their values where they were idle; none may have more than `most` entries."""
    hidden = {entry["places"] for entry in how.values()}
    whole = {name: tensor for name, tensor in tensors.items() if name not in hidden}
    for name, entry in how.items():
        size, values, places = math.prod(entry["shape"]), tensors.get(name), tensors.get(entry["places"])
        if values is None or places is None or places.dtype not in (torch.int32, torch.int64) or size > most:
            raise ValueError(f"sparse.{name} does not fit the tensors")
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < size:
            raise ValueError(f"sparse.{name} has places outside of its shape {tuple(entry['shape'])}")
        dense = values.new_full((size,), entry.get("value", 0.0))
        dense[places.long()] = values
        whole[name] = dense.view(entry["shape"])
    return whole
