"""Arrays of one's own: an npz file, or a folder of npy files, with inputs and targets by their usual names."""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bayesify.checks import Share
from bayesify.data.checks import check_counts, real_numbers, whole_numbers
from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, load_array, read_arrays, split_rows

INPUTS = ("x", "inputs", "images", "data", "features")
TARGETS = ("y", "targets", "labels", "target", "label")
PARTS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    task: Literal["classification", "regression"] | None = None,
    test: Share = 0.2,
) -> DataSet:
    """x and y, or x_train, y_train, x_test, y_test and perhaps x_val, y_val, in one npz file or a folder of npy files.

    Also called X, inputs, images, data or features, and targets, labels, target or label; parts may stand first, as
    in train_images. Images of bytes are (N, H, W), (N, H, W, C) or (N, C, H, W).

    task:  None: classification where the targets are whole numbers in one column from 0 on, else regression
    test:  the share of examples to test on where there is no part of that name
    """
    path = data_root(name, root)
    arrays = read_folder(path) if path.is_dir() else read_arrays(path)
    return from_arrays(path.name, arrays, str(path), task, test)


def from_arrays(
    name: str, arrays: dict[str, np.ndarray], path: str, task: str | None = None, test: float = 0.2
) -> DataSet:
    """The data set of arrays by their names; errors say `path`."""
    found = {part: pair for part in PARTS if (pair := _pair(arrays, part, path)) is not None}
    whole = _pair(arrays, None, path)
    if whole is None and not {"train", "test"} <= set(found):
        raise ValueError(
            f"{path}: holds {', '.join(arrays) or 'nothing'}: name the arrays x and y, or x_train, y_train, x_test "
            f"and y_test"
        )
    if "train" not in found and whole is not None:
        found["train"] = whole
    inputs = {part: _inputs(x, f"{path}, inputs of {part}") for part, (x, _) in found.items()}
    classes = _num_classes([y for _, y in found.values()], task)
    targets = {part: _targets(y, classes, f"{path}, targets of {part}") for part, (_, y) in found.items()}
    for part in found:
        check_counts(len(inputs[part]), len(targets[part]), f"{path}, {part}")
    parts = {part: Split(inputs[part], targets[part]) for part in found}
    if "test" not in parts:
        count = len(parts["train"])
        train, rest = split_rows(count, test, f"{path}: test={test!r} of {count:,} examples")
        parts |= {"train": parts["train"].take(train), "test": parts["train"].take(rest)}
    if classes is None:
        return DataSet.regression(name, parts["train"], parts["test"], val=parts.get("val"))
    names = [str(i) for i in range(classes)]
    return DataSet.classification(name, parts["train"], parts["test"], names, val=parts.get("val"))


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    """The npy files of a folder by their names."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            with path.open("rb") as file:
                found[path.stem] = load_array(file, path.stat().st_size)
        except ValueError as error:
            raise ValueError(f"{path}: not a readable npy file ({error})") from None
    return found


def _pair(arrays: dict[str, np.ndarray], part: str | None, path: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Inputs and targets of a part; None where there are none of either."""
    known = {key.lower(): array for key, array in arrays.items()}

    def first(names: tuple[str, ...]) -> np.ndarray | None:
        spelled = (
            names
            if part is None
            else [s for n in names for p in PARTS[part] for s in (f"{n}_{p}", f"{p}_{n}")]
        )
        return next((known[key] for key in spelled if key in known), None)

    x, y = first(INPUTS), first(TARGETS)
    if (x is None) != (y is None):
        what = "arrays" if part is None else f"arrays of {part}"
        raise ValueError(f"{path}: of the {what} only {'targets' if x is None else 'inputs'} are there")
    return None if x is None or y is None else (x, y)


def _inputs(x: np.ndarray, where: str) -> Tensor:
    """(N, D), (N, C, H, W) …: bytes stay bytes where they are images, all else is float64."""
    if x.ndim < 2:
        raise ValueError(f"{where}: shape {x.shape} where (examples, …) is expected")
    if x.dtype != np.uint8 or x.ndim == 2:
        return real_numbers(x, where)
    images = torch.from_numpy(x)
    if images.dim() == 4 and images.shape[-1] in (1, 3) and images.shape[1] not in (1, 3):
        return images.movedim(-1, 1).contiguous()
    return images[:, None] if images.dim() == 3 else images


def _num_classes(targets: list[np.ndarray], task: str | None) -> int | None:
    """The number of classes; None for a regression."""
    flat = all(y.ndim == 1 or (y.ndim == 2 and y.shape[1] == 1) for y in targets)
    whole = flat and all(y.size and y.dtype.kind in "biu" and int(y.min()) >= 0 for y in targets)
    if task == "regression" or (task is None and not whole):
        return None
    return 1 + max(int(y.max(initial=0)) for y in targets)


def _targets(y: np.ndarray, classes: int | None, where: str) -> Tensor:
    if classes is not None:
        return whole_numbers(y.reshape(-1).astype(np.int64) if y.dtype.kind == "b" else y.reshape(-1), where)
    return real_numbers(y.reshape(len(y), -1) if y.ndim else y, where)
