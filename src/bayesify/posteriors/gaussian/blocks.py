"""Curvatures by block, each in its own eigenbasis: H = Q diag(λ) Qᵀ. Whatever is added to λ, Q stays."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesify.passes.layerwise import Factored, between


class Block(nn.Module, ABC):
    """The curvature of one weight, or of several together (in their order, flattened and joined).

    Members, in this order: `spectrum`, `between`, `back`, `back_squared`, `words`.
    """

    @abstractmethod
    def spectrum(self) -> Tensor:
        """λ, in a shape of the block's own."""

    @abstractmethod
    def between(self, parts: Sequence[Tensor | Factored], middle: Tensor) -> Tensor:
        """J Q diag(middle) Qᵀ Jᵀ of the weights' parts of J, each (batch, rows, *shape) or factored."""

    @abstractmethod
    def back(self, values: Tensor) -> list[Tensor]:
        """Q v of v (…, *shape of λ), by weight."""

    @abstractmethod
    def back_squared(self, values: Tensor) -> list[Tensor]:
        """diag(Q diag(v) Qᵀ) of v, of the shape of λ, by weight."""

    @abstractmethod
    def words(self) -> str:
        """A few words for `summary()`."""


class Diagonal(Block):
    """H = diag(values), of one weight."""

    values: Tensor

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)

    def spectrum(self) -> Tensor:
        return self.values

    def between(self, parts: Sequence[Tensor | Factored], middle: Tensor) -> Tensor:
        return between(parts[0], middle)

    def back(self, values: Tensor) -> list[Tensor]:
        return [values]

    def back_squared(self, values: Tensor) -> list[Tensor]:
        return [values]

    def words(self) -> str:
        return "diagonal"


class Kronecker(Block):
    """H = L ⊗ R in every group, L = Q_L diag(λ_L) Q_Lᵀ of the rows of a weight matrix and R of its columns.

    shape:  of the weight, whose first dimension has the rows of all groups
    left_vectors, left_values, right_vectors, right_values:  (groups, n, n) and (groups, n)
    """

    left_vectors: Tensor
    left_values: Tensor
    right_vectors: Tensor
    right_values: Tensor

    def __init__(self, shape: torch.Size, **factors: Tensor) -> None:
        super().__init__()
        self.shape = shape
        for name, value in factors.items():
            self.register_buffer(name, value)

    @classmethod
    def of(cls, shape: torch.Size, left: Tensor, right: Tensor, dtype: torch.dtype) -> "Kronecker":
        """From the factors, (groups, n, n), in float64."""
        (lv, lq), (rv, rq) = eigen(left), eigen(right)
        made = {"left_vectors": lq, "left_values": lv, "right_vectors": rq, "right_values": rv}
        return cls(shape, **{name: value.to(dtype) for name, value in made.items()})

    def spectrum(self) -> Tensor:
        return self.left_values[:, :, None] * self.right_values[:, None, :]  # (groups, rows, columns)

    def between(self, parts: Sequence[Tensor | Factored], middle: Tensor) -> Tensor:
        left, right = self.left_vectors, self.right_vectors
        if isinstance(parts[0], Factored):
            return parts[0].turned(left, right).between(middle)
        groups, rows = self.left_values.shape
        v = parts[0].reshape(*parts[0].shape[:2], groups, rows, -1)
        return between(left.mT @ v @ right, middle)

    def back(self, values: Tensor) -> list[Tensor]:
        found = self.left_vectors @ values @ self.right_vectors.mT
        return [found.reshape(*found.shape[:-3], *self.shape)]

    def back_squared(self, values: Tensor) -> list[Tensor]:
        found = self.left_vectors.square() @ values @ self.right_vectors.square().mT
        return [found.reshape(self.shape)]

    def words(self) -> str:
        groups = len(self.left_values)
        times = f"{groups} groups of " if groups > 1 else ""
        return f"Kronecker factors {times}{self.left_values.shape[1]} and {self.right_values.shape[1]}"


class Dense(Block):
    """H as it is, of one weight or several.

    shapes:  of the weights
    """

    vectors: Tensor
    values: Tensor

    def __init__(self, shapes: Sequence[torch.Size], vectors: Tensor, values: Tensor) -> None:
        super().__init__()
        self.shapes = list(shapes)
        self.register_buffer("vectors", vectors)
        self.register_buffer("values", values)

    @classmethod
    def of(cls, shapes: Sequence[torch.Size], matrix: Tensor, dtype: torch.dtype) -> "Dense":
        """From H, in float64."""
        values, vectors = eigen(matrix)
        return cls(shapes, vectors.to(dtype), values.to(dtype))

    def spectrum(self) -> Tensor:
        return self.values

    def between(self, parts: Sequence[Tensor | Factored], middle: Tensor) -> Tensor:
        whole = [part.dense() if isinstance(part, Factored) else part for part in parts]
        return between(torch.cat([part.flatten(2) for part in whole], 2) @ self.vectors, middle)

    def back(self, values: Tensor) -> list[Tensor]:
        return self._parts(values @ self.vectors.mT)

    def back_squared(self, values: Tensor) -> list[Tensor]:
        return self._parts(values @ self.vectors.square().mT)

    def _parts(self, joined: Tensor) -> list[Tensor]:
        parts = joined.split([math.prod(shape) for shape in self.shapes], -1)
        return [
            part.reshape(*joined.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def words(self) -> str:
        return f"dense {len(self.values)}×{len(self.values)}"


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, which are not negative, and eigenvectors of symmetric matrices, laid out as files lay them out."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    return values.clamp_min(0), vectors.contiguous()
