"""Data of one's own: by path, which kind of data set reads it; by package.module:factory, what that returns."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesify.data import arrays, hugging_face, image_folder, table
from bayesify.data.dataset import DataSet
from bayesify.names import describe, import_factory

SUFFIXES = dict.fromkeys(table.SUFFIXES, "table") | {".npz": "arrays"}


def kind_of(path: Path) -> str | None:
    """The key of DATA for a file or folder; None where it is of no kind that is read."""
    if not path.is_dir():
        return SUFFIXES.get(path.suffix.lower())
    if hugging_face.is_saved(path):
        return "hugging_face"
    if any((path / f"train{suffix}").is_file() for suffix in table.SUFFIXES):
        return "table"
    if any(path.glob("*.npy")):
        return "arrays"
    return "image_folder" if image_folder.has_classes(path) else None


def find(name: str, root: str | os.PathLike[str] | None) -> tuple[str, str] | None:
    """(key of DATA, whole path) of a `name` that is a path, as houses.csv; None where it is none."""
    path = Path(name).expanduser()
    if not path.suffix and os.sep not in name and not path.is_dir():
        return None
    path = path if root is None or path.exists() else Path(root).expanduser() / path
    if not path.exists():
        if path.suffix.lower() in SUFFIXES or os.sep in name:
            raise FileNotFoundError(f"data={name!r}: there is no such file or folder")
        return None
    kind = kind_of(path)
    if kind is None:
        raise ValueError(
            f"data={name!r}: is neither a table ({', '.join(table.SUFFIXES)}) nor an npz file, nor a folder with "
            f"train.csv, with npy files, with images in a folder for each class, or with a saved data set of datasets"
        )
    return kind, str(path.resolve())


def made_by(path: str, options: Mapping[str, Any]) -> DataSet:
    """What the callable at "package.module:factory" returns for `options`: a DataSet, or its parts (train, test) or
    (train, val, test), each of them inputs and targets as tensors or arrays, or a TensorDataset of both."""
    factory = import_factory(path, "data")
    try:
        made = factory(**options)
    except Exception as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise RuntimeError(f"data={path!r} failed when called with ({shown}): {describe(error)}") from error
    if isinstance(made, DataSet):
        return made
    if not isinstance(made, Sequence) or len(made) not in (2, 3):
        raise TypeError(
            f"data={path!r} returned a {type(made).__name__}; it must return a bayesify.data.DataSet, or (train, "
            f"test) or (train, val, test), each of inputs and targets"
        )
    parts = dict(zip(("train", "val", "test") if len(made) == 3 else ("train", "test"), made, strict=True))
    named: dict[str, np.ndarray] = {}
    for part, pair in parts.items():
        x, y = getattr(pair, "tensors", pair)
        named |= {f"x_{part}": np.asarray(x), f"y_{part}": np.asarray(y)}
    return arrays.from_arrays(path, named, path)
