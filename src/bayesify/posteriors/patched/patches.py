"""One patched tensor: whose choices it takes, and its value for a choice."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesify.posteriors.patched.assignments import Assignment
from bayesify.weights import Slot

#: what a unit chose: the number of a component; assignments; or one-hot rows that carry a gradient
Chosen = int | Tensor


class Patch(NamedTuple):
    """One patched tensor: whose assignments it takes, its shape, and the shape against which z has `z_shape`."""

    unit: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    z_shape: tuple[int, ...]


def patch_of(name: str, slot: Slot, assignment: Assignment) -> Patch:
    """The patch of one parameter under an assignment."""
    weight, module = slot.get(), slot.module
    shape = tuple(weight.shape)
    return Patch(
        assignment.unit(name), shape, assignment.view(weight, module), assignment.shape(weight, module)
    )


def value_at(patch: Patch, centroids: Sequence[Any], chosen: Chosen, n: int | None = None) -> Tensor:
    """Σ_k 1[Z = k] ∘ M_k: (*shape), or (n, *shape) for n rows of assignments."""
    if isinstance(chosen, int):
        return centroids[chosen]
    viewed = [m if m is None else m.view(patch.view) for m in centroids]
    if chosen.is_floating_point():  # one-hot rows, (size, K)
        weights = chosen.mT.reshape(-1, *patch.z_shape)  # (K, *z_shape)
        total: Any = sum(r * m for r, m in zip(weights, viewed, strict=True) if m is not None)
        return total.view(patch.shape)
    lead = () if n is None else (n,)
    return pick(chosen.reshape(*lead, *patch.z_shape), viewed).reshape(*lead, *patch.shape)


def pick(z: Tensor, values: Sequence[Tensor | None]) -> Tensor:
    """Σ_k 1[z = k] ∘ values_k, all broadcast against z; None stands for zero."""
    result: Any = values[0]
    for k, value in enumerate(values[1:], 1):
        result = torch.where(z == k, 0 if value is None else value, result)
    return result


def member_indices(index: Any, layers: list[str], num_components: int) -> dict[str, int]:
    """layer -> component from one number for all, a sequence of one each, or a mapping (0 where left out)."""
    if isinstance(index, Mapping):
        unknown = sorted(set(index) - set(layers))
        if unknown:
            raise ValueError(f"member: {unknown[0]!r} is not patched; patched are {', '.join(layers)}")
        chosen = {layer: index.get(layer, 0) for layer in layers}
    elif isinstance(index, Sequence):
        if len(index) != len(layers):
            raise ValueError(
                f"member: {len(index)} indices for the {len(layers)} patched {', '.join(layers)}"
            )
        chosen = dict(zip(layers, index, strict=True))
    else:
        chosen = dict.fromkeys(layers, index)
    for value in chosen.values():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < num_components:
            raise ValueError(f"member: index {value!r} must be a whole number in 0..{num_components - 1}")
    return chosen
