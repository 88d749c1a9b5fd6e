"""The UCI regression benchmark, with its published 90/10 splits.

Hernández-Lobato and Adams, "Probabilistic backpropagation", ICML 2015; splits as distributed by Gal and
Ghahramani. Every set is one npz file with X (N, D), y (N, T), and row indices train (S, n), test (S, m).
"""

import os
from pathlib import Path

import numpy as np
from torch import Tensor

from bayesify.data.checks import check_shape, real_numbers, whole_numbers
from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, locate, read_npz

FOLDERS = ("uci", "", "UCI", "uci_regression")


def load(name: str, root: str | os.PathLike[str] | None, *, split: int = 0, target: int = 0) -> DataSet:
    """`uci_<file>`: a published split of one of the benchmark's sets.

    split:   its number, from 0
    target:  column of y; 0 is the benchmark's target, energy and naval have a second one

    Inputs and the target stay in original units; `normalisation` holds the statistics of the split's training rows.
    """
    file = f"{name.removeprefix('uci_')}.npz"
    path = locate(name, data_root(name, root), FOLDERS, [(file,)])[0]
    arrays = read_npz(path, ("X", "y", "train", "test"))
    x, y = (real_numbers(arrays[key], f"{path}, array {key}") for key in ("X", "y"))
    check_shape(tuple(x.shape), (None, None), f"{path}, array X")
    check_shape(tuple(y.shape), (len(x), None), f"{path}, array y")
    train, test = _rows(path, arrays, split, len(x))
    if not 0 <= target < y.shape[1]:
        raise ValueError(f"target={target!r}: {path} has target columns 0..{y.shape[1] - 1}")
    whole = Split(x, y[:, target : target + 1])  # (N, D) and (N, 1)
    return DataSet.regression(name, whole.take(train), whole.take(test))


def _rows(path: Path, arrays: dict[str, np.ndarray], split: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """The split's training and test rows: in range, and no row in both."""
    num_splits = len(np.atleast_1d(arrays["train"]))
    for part in ("train", "test"):
        check_shape(arrays[part].shape, (num_splits, None), f"{path}, array {part}")
    if not 0 <= split < num_splits:
        raise ValueError(f"split={split!r}: {path} has splits 0..{num_splits - 1}")
    train, test = (whole_numbers(arrays[p][split], f"{path}, array {p}") for p in ("train", "test"))
    for part, rows in (("train", train), ("test", test)):
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= num_rows:
            raise ValueError(
                f"{path}: array {part}, split {split}: row indices must lie in 0..{num_rows - 1}"
            )
    shared = set(train.tolist()) & set(test.tolist())
    if shared:
        raise ValueError(
            f"{path}: split {split} has {len(shared)} rows in both train and test, e.g. {min(shared)}"
        )
    return train, test
