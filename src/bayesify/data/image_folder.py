"""Folders of JPEG or PNG images, one folder per class: ImageNet's layout."""

import os
from pathlib import Path

import torch

from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, import_optional, split_rows
from bayesify.data.image_files import ImageFiles
from bayesify.data.normalisation import Normalisation

SUFFIXES = (".jpg", ".jpeg", ".png")
#: the statistics that ImageNet networks are trained with
LARGE = 224  # pixels; smaller images keep their size
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    size: int | None = None,
    resize: int | None = None,
    num_workers: int | None = None,
    in_memory: bool = False,
) -> DataSet:
    """`root`/train/<class>/*.jpg, and `root`/val or `root`/test; both, if both are there. Or `root`/<class>/*.jpg.

    Where only one of val and test exists it is the test part; where there are classes alone, a fifth of their images,
    chosen by chance and always the same. Classes are the sub-folders of train in alphabetical order. Images stay on
    disk and are decoded as a `Loader` iterates. Normalisation is ImageNet's.

    size:         of the centre that is cut out, in pixels; None: that of the images where all are small squares of one
                  size (below 224), else 224
    resize:       pixels of the shorter side before that; None: size · 256/224, or size where images have it
    num_workers:  processes that decode; None: one for each core, at most 4
    in_memory:    decode everything once and keep it
    """
    base = data_root(name, root)
    workers = min(4, os.cpu_count() or 1) if num_workers is None else num_workers
    alone = not any((base / part).is_dir() for part in ("train", "val", "test"))
    first = base if alone else base / "train"
    class_names = class_folders(first)
    if not class_names:
        raise FileNotFoundError(
            f"data set {name!r}: no folders {base / 'train'}/<class> with images. Name the folder that holds "
            "train/ with --data-root (root=) or the variable BAYESIFY_DATA."
        )
    if size is None:
        seen = _seen([path for each in class_names for path in _images(first / each)])
        size, resize = (224, resize) if seen is None else (seen, resize or seen)
    resize = round(size * 256 / 224) if resize is None else resize
    if not 0 < size <= resize:
        raise ValueError(f"size={size!r}, resize={resize!r}: need 0 < size <= resize")
    parts = {
        part: _split(folder, class_names, size, resize, workers, in_memory)
        for part, folder in {"train": first, "val": base / "val", "test": base / "test"}.items()
        if class_folders(folder)  # ImageNet's own test folder has images without labels
    }
    if len(parts) == 1:
        if any(_images(base / part) for part in ("val", "test")):
            raise FileNotFoundError(
                f"data set {name!r}: neither {base / 'val'} nor {base / 'test'} has class folders: sort their images "
                "into folders named like those of train"
            )
        train, rest = split_rows(len(parts["train"]), 0.2, f"data set {name!r}: a fifth of the images")
        parts = {"train": parts["train"].take(train), "test": parts["train"].take(rest)}
    test = parts["test"] if "test" in parts else parts.pop("val")
    imagenet = Normalisation(torch.tensor(MEAN).double(), torch.tensor(STD).double())
    return DataSet.classification(
        name,
        parts["train"],
        test,
        class_names,
        val=parts.get("val"),
        normalisation=imagenet,
        augment="crop_flip",
    )


def _seen(paths: list[Path]) -> int | None:
    """The side of small square images: of at most 100 that are looked at."""
    Image = import_optional("PIL.Image", "pillow", "reading image files")
    sizes = set()
    for path in paths[:: max(len(paths) // 100, 1)]:
        try:
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                sizes.add(image.size)
        except Exception:  # it is named when it is read
            return None
    width, height = sizes.pop() if len(sizes) == 1 else (LARGE, LARGE)
    return width if width == height < LARGE else None


def _entries(folder: Path) -> list[Path]:
    """What is in a folder and not hidden, by name; nothing where there is no folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry for entry in found if not entry.name.startswith("."))


def class_folders(folder: Path) -> list[str]:
    """The folders in a folder, by name."""
    return [entry.name for entry in _entries(folder) if entry.is_dir()]


def has_classes(folder: Path) -> bool:
    """Are there images in folders for each class, here or in train/?"""
    return any(_images(base / each) for base in (folder, folder / "train") for each in class_folders(base))


def _split(
    folder: Path, class_names: list[str], size: int, resize: int, num_workers: int, in_memory: bool
) -> Split:
    """The labelled files of one part, ordered by class and then by name."""
    unknown = sorted(set(class_folders(folder)) - set(class_names))
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
