"""Many parameters as one long vector: few operations for all of them, whatever their number."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals

CHUNK = 2**16  # coordinates at a time on a CPU: what a step touches of them fits into the cache


class Bucket:
    """The coordinates of some parameters of one dtype and device, in order, with a vector for each state.

    Half-precision parameters are followed by a float32 `master`, because a step is smaller than their
    rounding; states are float32 at least.
    """

    def __init__(self, parameters: list[Tensor], names: tuple[str, ...]) -> None:
        self.parameters = parameters
        self.tables: Any = None  # of the fused kernel
        first = parameters[0]
        self.device = first.device
        self.dtype = torch.promote_types(first.dtype, torch.float32)
        self.sizes = [p.numel() for p in parameters]
        self.numel = sum(self.sizes)
        self.rounded = first.dtype != self.dtype
        self.states = {name: torch.zeros(self.numel, dtype=self.dtype, device=self.device) for name in names}
        if self.rounded:
            self.states["master"] = flat(parameters, self.dtype)
        self.pieces = self._pieces()

    def _pieces(self) -> list["Piece"]:
        """On a CPU: large parameters in chunks of their own, the others a few together. Else everything at once."""
        if self.device.type != "cpu" or self.rounded:
            return [Piece(self, self.parameters, 0)]
        pieces: list[Piece] = []
        together: list[Tensor] = []
        start = place = 0
        for p, size in zip(self.parameters, self.sizes, strict=True):
            large = size > CHUNK and p.is_contiguous()
            if together and (large or place + size - start > CHUNK):
                pieces.append(Piece(self, together, start))
                together = []
            if large:
                cuts = [slice(*ends) for ends in pairwise([*range(0, size, CHUNK), size])]
                pieces += [Piece(self, [p], place + cut.start, cut) for cut in cuts]
            else:
                start = start if together else place
                together.append(p)
            place += size
        return [*pieces, Piece(self, together, start)] if together else pieces


class Piece:
    """Consecutive coordinates of a bucket: some whole parameters, or the part `inside` of one."""

    def __init__(
        self, bucket: Bucket, parameters: list[Tensor], start: int, inside: slice | None = None
    ) -> None:
        self.bucket = bucket
        self.parameters = parameters
        self.inside = inside
        whole = slice(0, sum(p.numel() for p in parameters)) if inside is None else inside
        self.numel = whole.stop - whole.start
        self.part = slice(start, start + self.numel)

    def states(self) -> dict[str, Tensor]:
        """Views of the bucket's vectors."""
        return {name: vector[self.part] for name, vector in self.bucket.states.items()}

    def gradient(self, factor: float | Tensor) -> Tensor:
        """The gradients times `factor`, as one vector."""
        if self.inside is not None:
            gradient = self.parameters[0].grad
            assert gradient is not None
            return gradient.detach().reshape(-1)[self.inside] * factor
        return flat([p.grad for p in self.parameters], self.bucket.dtype).mul_(factor)  # type: ignore[misc]

    def add(self, move: Tensor) -> None:
        """θ ← θ + move."""
        if self.inside is not None:
            self.parameters[0].detach().view(-1)[self.inside] += move
        elif self.bucket.rounded:
            self._add_rounded(move)
        else:
            internals.foreach_add_(self.parameters, views(move, self.parameters))

    def _add_rounded(self, move: Tensor) -> None:
        master = self.bucket.states["master"][self.part]
        now = flat(self.parameters, self.bucket.dtype)
        changed = now != master.to(self.parameters[0].dtype)  # somebody else wrote to the parameters
        master.copy_(torch.where(changed, now, master)).add_(move)
        internals.foreach_copy_(self.parameters, views(master, self.parameters))


def precise(p: Tensor, states: Mapping[Tensor, Mapping[str, Tensor]]) -> Tensor:
    """A copy of the parameter, from its master where it has one that nobody else has overwritten."""
    master = states[p].get("master")
    if master is None:
        return p.detach().clone()
    return torch.where(p == master.to(p.dtype), master, p.to(master.dtype)).detach()


def flat(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    """A copy of the tensors as one vector."""
    return torch.cat([t.detach().reshape(-1) for t in tensors]).to(dtype)


def views(vector: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """A vector over the entries of the tensors, cut into their shapes."""
    parts = vector.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def same_kind(parameters: list[Tensor]) -> list[list[Tensor]]:
    """The parameters in lists of one dtype and device."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for p in parameters:
        kinds.setdefault((p.dtype, p.device), []).append(p)
    return list(kinds.values())
