"""Folders that `datasets` of Hugging Face saved: images with classes, or tables. Nothing is downloaded."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesify.checks import Count
from bayesify.data import table
from bayesify.data.columns import Table
from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, import_optional, split_rows

PARTS = {"train": "train", "validation": "val", "val": "val", "test": "test"}


def is_saved(folder: Path) -> bool:
    """Was it written by `save_to_disk`, with one part or several?"""
    return any((folder / file).is_file() for file in ("state.json", "dataset_dict.json"))


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    target: str | None = None,
    size: Count | None = None,
) -> DataSet:
    """A folder written by `save_to_disk`, with the parts train and, if they are there, validation and test.

    Without a part for tests a fifth of the examples is taken, chosen by chance and always the same.

    target:  the column to predict; None: the first one of classes, or as for tables
    size:    pixels of the sides of images; None: that of the images, which must be one
    """
    path = data_root(name, root)
    datasets = import_optional("datasets", "datasets", "reading a saved data set of Hugging Face")
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # of many kinds, and of pyarrow's
        raise ValueError(f"{path}: not a readable data set of Hugging Face ({error})") from None
    splits = dict(saved) if isinstance(saved, Mapping) else {"train": saved}
    found = {PARTS[key]: split for key, split in splits.items() if key in PARTS}
    if "train" not in found:
        raise ValueError(f"{path}: has the parts {', '.join(splits)}, none of them is called train")
    features = found["train"].features
    classes = [k for k, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    images = [k for k, kind in features.items() if isinstance(kind, datasets.Image)]
    chosen = target if target is not None else (classes or [None])[0]
    if not images:
        columns = {part: _columns(split) for part, split in found.items()}
        return table.from_tables(path.name, columns, dict.fromkeys(columns, str(path)), target=chosen)
    if chosen not in classes:
        raise ValueError(
            f"{path}: target={chosen!r} is no column of classes; it has {', '.join(classes) or 'none'}"
        )
    parts = {part: _images(split, images[0], str(chosen), size, path) for part, split in found.items()}
    if "test" not in parts:
        train, rest = split_rows(len(parts["train"]), 0.2, f"{path}: a fifth of the examples")
        parts |= {"train": parts["train"].take(train), "test": parts["train"].take(rest)}
    names = features[chosen].names
    return DataSet.classification(path.name, parts["train"], parts["test"], names, val=parts.get("val"))


def _columns(split: Any) -> Table:
    """The columns of one part; those of classes as their names."""
    found = {}
    for key, kind in split.features.items():
        values = list(split[key])
        names = getattr(kind, "names", None)
        found[key] = table.plain([v if v is None or names is None else names[v] for v in values])
    return found


def _images(split: Any, column: str, target: str, size: int | None, path: Path) -> Split:
    pictures = []
    for number, image in enumerate(split[column]):
        image = image.convert("L" if image.mode in ("1", "L") else "RGB")
        image = image if size is None else image.resize((size, size))
        pictures.append(torch.from_numpy(np.array(image)))
        if pictures[-1].shape != pictures[0].shape:
            raise ValueError(
                f"{path}: image {number} is {image.width} × {image.height} pixels in {image.mode}, others are not: "
                f"give one size for all, --set data.size={min(image.size)}"
            )
    stacked = torch.stack(pictures)
    stacked = stacked[:, None] if stacked.dim() == 3 else stacked.movedim(-1, 1).contiguous()
    return Split(stacked, torch.tensor(split[target]))
