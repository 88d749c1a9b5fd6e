"""Which entries of an activation belong to which example."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesify.execution import can_read_values, compiling, exporting


class Unknown(Exception):
    """It cannot be told, or an example has no entries of its own."""


class Layout(NamedTuple):
    """dim: of the examples, which may be the slower part of it."""

    dim: int
    batch: int

    def of_values(self, values: Tensor) -> Tensor:
        """(batch, …)."""
        values = values.movedim(self.dim, 0)
        return values if values.shape[0] == self.batch else values.unflatten(0, (self.batch, -1))

    def of_seeds(self, values: Tensor) -> Tensor:
        """(seeds, batch, …)."""
        values = values.movedim(1 + self.dim, 1)
        return values if values.shape[1] == self.batch else values.unflatten(1, (self.batch, -1))


def find_layouts(output: Tensor, places: Sequence[Tensor], batch: int, known: dict[Any, Any]) -> list[Layout]:
    """Of each of `places`, activations from which `output` (batch, …) was computed.

    An example's outputs depend on its own entries alone: derivatives of the first one's outputs tell which they are.
    Learned once for all passes of the same shapes; compiled code that comes first goes by the shapes, and a program
    for batches of every size by the pass before.
    """
    dims = tuple(place.dim() for place in places)
    if exporting():
        if isinstance(known[dims], Unknown):
            raise known[dims]
        return [Layout(at.dim, batch) for at in known[dims]]
    key = (batch, *(tuple(place.shape) for place in places))
    if key not in known:
        if not can_read_values() or batch == 1:
            return [_candidates(place, batch)[0] for place in places]
        candidates = [_candidates(place, batch) for place in places]
        first = torch.autograd.grad(output[0].sum(), places, retain_graph=True, allow_unused=True)
        try:
            known[key] = [_fitting(each, delta) for each, delta in zip(candidates, first, strict=True)]
        except Unknown as unknown:
            known[dims] = unknown
            raise
    known[dims] = known[key]
    return known[key]


def _candidates(place: Tensor, batch: int) -> list[Layout]:
    dims = [d for d, size in enumerate(place.shape) if size == batch]
    if not dims or not compiling():
        dims += [d for d, size in enumerate(place.shape) if d not in dims and size % batch == 0]
    if not dims:
        raise Unknown(
            f"the covariance of the outputs needs to know which numbers belong to which of the {batch} examples, and "
            f"an activation of shape {tuple(place.shape)} has no dimension of them"
        )
    return [Layout(d, batch) for d in dims]


def _fitting(candidates: list[Layout], delta: Tensor | None) -> Layout:
    """The first in which nothing outside of the first example moves its outputs."""
    if delta is None:
        return candidates[0]
    for layout in candidates:
        if not layout.of_values(delta)[1:].any():
            return layout
    raise Unknown(
        f"the covariance of the outputs takes those of an example as functions of this example alone, and here (an "
        f"activation of shape {tuple(delta.shape)}) they depend on others too"
    )
