"""Rows of a table as they are trained on: each once, with its weight, and columns standardised."""

from typing import NamedTuple

import numpy as np


class Scaling(NamedTuple):
    """z = (x − mean) / std of every column; a constant column has std 1."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray) -> "Scaling":
        """mean = Σ w x / Σ w, std² = Σ w (x − mean)² / Σ w of rows (rows, columns) with weights (rows,)."""
        share = weight / weight.sum()
        mean = share @ x
        std = np.sqrt(share @ np.square(x - mean))
        constant = (x.max(0) == x.min(0)) | (std == 0)  # rounding makes the std of a constant 1e-14
        return cls(np.where(constant, x[0], mean), np.where(constant, 1.0, std))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows standardised."""
        return (x - self.mean) / self.std


def distinct(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows that differ, in sorted order, each with the sum of its weights; those of weight 0 left out.

    A posterior knows nothing else of its data. So a weight of 2 is the row twice, one of 0 the row left out, and the
    order of the rows does not matter, bit for bit.
    """
    table = np.hstack([y, x])[weight > 0]
    rows, index = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(index.ravel(), weight[weight > 0])
    return rows[:, y.shape[1] :], rows[:, : y.shape[1]], total
