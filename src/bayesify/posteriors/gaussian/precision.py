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
    def like(cls, weights: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> "Precision":
        """With room for stored tensors, by the keys of this module. One block that is dense holds all weights. Raises
        where they are not those of such weights."""
        parts: dict[int, dict[str, torch.Size]] = {}
        for key, value in stored.items():
            room, _, rest = key.partition(".")
            if room == "blocks":
                index, _, name = rest.partition(".")
                parts.setdefault(int(index), {})[name] = value.shape
        names = [[*weights]] if len(parts) == 1 else [[name] for name in weights]
        blocks = [_block([weights[name] for name in group], parts[i]) for i, group in enumerate(names)]
        first = next(iter(weights.values()))
        return cls(names, blocks, first.new_empty(len(blocks)), first.new_empty(()))

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


def _block(weights: Sequence[Tensor], stored: Mapping[str, torch.Size]) -> Block:
    """With room for tensors of these shapes, which say what kind of block it is."""
    size, shapes = sum(w.numel() for w in weights), [w.shape for w in weights]
    wanted: dict[str, tuple[int, ...]] = {"values": shapes[0]}
    if "vectors" in stored:
        wanted = {"vectors": (size, size), "values": (size,)}
    elif "left_values" in stored:
        groups, rows = stored["left_values"]
        columns = shapes[0][1:].numel()
        fits = groups * rows == shapes[0][0]
        wanted = {"left_vectors": (groups, rows, rows), "left_values": (groups, rows) if fits else ()}
        wanted |= {"right_vectors": (groups, columns, columns), "right_values": (groups, columns)}
    if stored != wanted or ("vectors" not in stored and len(weights) > 1):
        found = {name: tuple(shape) for name, shape in stored.items()}
        raise ValueError(f"a curvature of {found} is not one of {[tuple(shape) for shape in shapes]}")
    room = {name: weights[0].new_empty(shape) for name, shape in wanted.items()}
    if "vectors" in room:
        return Dense(shapes, **room)
    return Kronecker(shapes[0], **room) if "left_values" in room else Diagonal(**room)
