"""Σ = (s H + δ)⁻¹: a curvature H by blocks, its scale s, and the precision δ of the prior of each block."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.laws.noise import standard_normal
from bayesify.posteriors.gaussian.blocks import Block, Dense, Diagonal, Kronecker
from bayesify.posteriors.gaussian.covariance import Covariance


class Precision(Covariance):
    """Σ⁻¹ = s H + δ.

    names:   of the weights of every block
    blocks:  of H
    deltas:  δ of every block
    scale:   s: 1 / std² of a normal likelihood, where that is found beside δ; else 1
    """

    factored = True
    deltas: Tensor
    scale: Tensor

    def __init__(
        self, names: Sequence[Sequence[str]], blocks: Sequence[Block], deltas: Tensor, scale: Tensor
    ) -> None:
        super().__init__()
        self.names = [list(each) for each in names]
        self.blocks = nn.ModuleList(blocks)
        self.register_buffer("deltas", deltas)
        self.register_buffer("scale", scale)

    @classmethod
    def from_shapes(cls, shapes: Mapping[str, torch.Size], stored: Mapping[str, Tensor]) -> "Precision":
        """With room for stored tensors, by the keys of this module. One block that is dense holds all weights."""
        parts: dict[int, dict[str, Tensor]] = {}
        for key, value in stored.items():
            room, _, rest = key.partition(".")
            if room == "blocks":
                index, _, name = rest.partition(".")
                parts.setdefault(int(index), {})[name] = torch.empty(value.shape, dtype=value.dtype)
        names = [[*shapes]] if len(parts) == 1 else [[name] for name in shapes]
        blocks = [
            _block([shapes[name] for name in group], parts[i]) for i, group in enumerate(names)
        ]  # fmt: skip
        deltas, scale = (
            torch.empty(stored[name].shape, dtype=stored[name].dtype) for name in ("deltas", "scale")
        )
        return cls(names, blocks, deltas, scale)

    def deviations(self, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for names, block, total in self._totals():
            noise = standard_normal((n, *total.shape), total, generator)
            found.update(zip(names, block.back(noise * total.rsqrt()), strict=True))
        return found

    def variance(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for names, block, total in self._totals():
            found.update(zip(names, block.back_squared(total.reciprocal()), strict=True))
        return found

    def of_outputs(self, jacobian: Mapping[str, Any]) -> Tensor:
        parts = [
            block.between([jacobian[name] for name in names], total.reciprocal())
            for names, block, total in self._totals()
        ]
        return torch.stack(parts).sum(0)

    def describe(self, name: str) -> str:
        i = next(i for i, names in enumerate(self.names) if name in names)
        return f"normal ({self._block(i).words()}, prior precision {float(self.deltas[i]):.3g})"

    def _totals(self) -> list[tuple[list[str], Block, Tensor]]:
        """Names, block and s λ + δ of every block."""
        return [
            (names, self._block(i), self.scale * self._block(i).spectrum() + self.deltas[i])
            for i, names in enumerate(self.names)
        ]

    def _block(self, i: int) -> Block:
        return self.blocks[i]  # type: ignore[return-value]


def _block(shapes: Sequence[torch.Size], tensors: Mapping[str, Tensor]) -> Block:
    """The kind of block that has these tensors."""
    if "left_values" in tensors:
        return Kronecker(shapes[0], **tensors)
    if "vectors" in tensors:
        return Dense(shapes, tensors["vectors"], tensors["values"])
    return Diagonal(tensors["values"])
