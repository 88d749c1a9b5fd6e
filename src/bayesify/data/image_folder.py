"""Folders of JPEG or PNG images, one folder per class: ImageNet's layout."""

import os
from pathlib import Path

import torch

from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root
from bayesify.data.image_files import ImageFiles
from bayesify.data.normalisation import Normalisation

SUFFIXES = (".jpg", ".jpeg", ".png")
#: the statistics that ImageNet networks are trained with
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    size: int = 224,
    resize: int | None = None,
    num_workers: int | None = None,
    in_memory: bool = False,
) -> DataSet:
    """`root`/train/<class>/*.jpg, and `root`/val or `root`/test; both, if both are there.

    Where only one of val and test exists it is the test part. Classes are the sub-folders of train in
    alphabetical order. Images stay on disk and are decoded as a `Loader` iterates. Normalisation is ImageNet's.

    size:         of the centre that is cut out, in pixels
    resize:       pixels of the shorter side before that; None: size · 256/224
    num_workers:  processes that decode; None: one for each core, at most 4
    in_memory:    decode everything once and keep it
    """
    base = data_root(name, root)
    resize = round(size * 256 / 224) if resize is None else resize
    if not 0 < size <= resize:
        raise ValueError(f"size={size!r}, resize={resize!r}: need 0 < size <= resize")
    workers = min(4, os.cpu_count() or 1) if num_workers is None else num_workers
    class_names = _class_folders(base / "train")
    if not class_names:
        raise FileNotFoundError(
            f"data set {name!r}: no folders {base / 'train'}/<class> with images. Name the folder that holds "
            "train/ with --data-root (root=) or the variable BAYESIFY_DATA."
        )
    parts = {
        part: _split(base / part, class_names, size, resize, workers, in_memory)
        for part in ("train", "val", "test")
        if _class_folders(base / part)  # ImageNet's own test folder has images without labels
    }
    if len(parts) == 1:
        flat = any(_images(base / part) for part in ("val", "test"))
        remedy = ": sort their images into folders named like those of train" if flat else ""
        raise FileNotFoundError(
            f"data set {name!r}: neither {base / 'val'} nor {base / 'test'} has class folders{remedy}"
        )
    test = parts["test"] if "test" in parts else parts.pop("val")
    train, val = parts["train"], parts.get("val")
    imagenet = Normalisation(torch.tensor(MEAN).double(), torch.tensor(STD).double())
    return DataSet.classification(
        name, train, test, class_names, val=val, normalisation=imagenet, augment="crop_flip"
    )


def _entries(folder: Path) -> list[Path]:
    """What is in a folder and not hidden, by name; nothing where there is no folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry for entry in found if not entry.name.startswith("."))


def _class_folders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if entry.is_dir()]


def _split(
    folder: Path, class_names: list[str], size: int, resize: int, num_workers: int, in_memory: bool
) -> Split:
    """The labelled files of one part, ordered by class and then by name."""
    unknown = sorted(set(_class_folders(folder)) - set(class_names))
    if unknown:
        raise ValueError(f"{folder}: class {', '.join(unknown)} does not occur in the train folder")
    paths: list[Path] = []
    labels: list[int] = []
    for label, class_name in enumerate(class_names):
        files = _images(folder / class_name)
        if not files and folder.name == "train":
            raise ValueError(f"{folder / class_name}: holds no image ({', '.join(SUFFIXES)})")
        paths += files
        labels += [label] * len(files)
    images = ImageFiles(tuple(paths), size, resize, num_workers)
    targets = torch.tensor(labels, dtype=torch.int64)
    if not in_memory:
        return Split(images, targets)
    batches = torch.arange(len(paths)).split(64)
    return Split(torch.cat(list(images.fetch(batches))), targets)


def _images(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if entry.suffix.lower() in SUFFIXES]
