"""Tensors of which only some entries matter, as files hold them: the places of those entries and their values."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

INT32 = 2**31  # tensors of fewer entries have places of four bytes


def pack(
    tensors: Mapping[str, Tensor], idle: Iterable[tuple[Tensor, Tensor]]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`tensors` with places and values for those in `idle`, where that is smaller; and how to put them back.

    idle: tensors, found by their memory, with the mask of entries that may be read back as zero

    Tensors with the same places share them; values that are all equal are stored once.
    """
    masks = {tensor.data_ptr(): mask for tensor, mask in idle if tensor.numel()}
    packed: dict[str, Tensor] = {}
    places: dict[str, Tensor] = {}
    how: dict[str, Any] = {}
    for name, tensor in tensors.items():
        mask = masks.get(tensor.data_ptr()) if tensor.numel() else None
        packed[name] = tensor
        if mask is None or mask.shape != tensor.shape:
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
            how[name] = {"shape": list(tensor.shape), "places": key}
    return packed, how


def unpack(tensors: Mapping[str, Tensor], how: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors that `pack` took, with zeros where they were idle."""
    places = {entry["places"] for entry in how.values()}
    whole = {name: tensor for name, tensor in tensors.items() if name not in places}
    for name, entry in how.items():
        shape = torch.Size(entry["shape"])
        dense = tensors[name].new_zeros(shape.numel())
        dense[tensors[entry["places"]].long()] = tensors[name]
        whole[name] = dense.view(shape)
    return whole
