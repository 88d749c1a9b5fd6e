"""CIFAR-10 and CIFAR-100: 32 × 32 colour images, in the binary version or the python version."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesify.data.checks import check_counts, check_labels, check_shape
from bayesify.data.dataset import DataSet, Split
from bayesify.data.download import Remote, fetch_archive
from bayesify.data.files import data_root, locate
from bayesify.data.safe_pickle import read_pickle
from bayesify.names import lookup

_PIXELS = 3 * 32 * 32

CLASSES_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FINE = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
_COARSE = """aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
    large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees
    vehicles_1 vehicles_2"""
CLASSES_100, CLASSES_20 = tuple(_FINE.split()), tuple(_COARSE.split())


@dataclass(frozen=True)
class Labels:
    """One kind of labels: its byte in a binary record, its key in a python batch, its classes."""

    byte: int
    key: str
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class CifarSet:
    """The layout of one set. A file is `<stem>.bin` (binary version) or `<stem>` (python version)."""

    folders: tuple[str, ...]  # searched in this order; a download goes to the first
    parts: dict[str, tuple[str, ...]]
    labels: dict[str, Labels]  # as many as a binary record has label bytes
    archive: Remote


SETS: dict[str, CifarSet] = {
    "cifar10": CifarSet(
        ("cifar-10-batches-bin", "cifar-10-batches-py", "", "cifar10", "cifar10/cifar-10-batches-bin",
         "cifar10/cifar-10-batches-py"),
        {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)},
        {"fine": Labels(0, "labels", CLASSES_10)},
        Remote("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    "cifar100": CifarSet(
        ("cifar-100-binary", "cifar-100-python", "", "cifar100", "cifar100/cifar-100-binary",
         "cifar100/cifar-100-python"),
        {"train": ("train",), "test": ("test",)},
        {"coarse": Labels(0, "coarse_labels", CLASSES_20), "fine": Labels(1, "fine_labels", CLASSES_100)},
        Remote("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    ),
}  # fmt: skip


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    labels: str = "fine",
    download: bool = False,
    test_only: bool = False,
) -> DataSet:
    """One of SETS.

    labels:     "fine", or "coarse" for CIFAR-100's 20
    download:   fetch files that are missing from their public address
    test_only:  leave the training part without examples
    """
    described = SETS[name]
    chosen = lookup(described.labels, labels, f"labels of {name}")
    base = data_root(name, root)
    test = _read_part(name, base, "test", chosen, download)
    train = test.none() if test_only else _read_part(name, base, "train", chosen, download)
    return DataSet.classification(name, train, test, chosen.class_names, augment="crop_flip")


def _read_part(name: str, root: Path, part: str, labels: Labels, download: bool) -> Split:
    described = SETS[name]
    files = [(f"{stem}.bin", stem) for stem in described.parts[part]]

    def fetch(base: Path) -> None:
        stems = [stem for stems in described.parts.values() for stem in stems]
        fetch_archive(described.archive, [f"{described.folders[0]}/{stem}.bin" for stem in stems], base)

    paths = locate(name, root, described.folders, files, fetch=fetch, download=download)
    parts = [
        read_binary(path, labels, len(described.labels))
        if path.suffix == ".bin"
        else read_python(path, labels)
        for path in paths
    ]
    return Split(torch.cat([images for images, _ in parts]), torch.cat([targets for _, targets in parts]))


def read_binary(path: Path, labels: Labels, num_labels: int) -> tuple[Tensor, Tensor]:
    """Records of `num_labels` label bytes and 3072 pixel bytes, the red plane first."""
    record = num_labels + _PIXELS
    content = np.fromfile(path, np.uint8)
    if len(content) == 0 or len(content) % record:
        raise ValueError(f"{path}: {len(content)} bytes are not a whole number of {record}-byte records")
    records = content.reshape(-1, record)
    return _tensors(path, records[:, num_labels:], records[:, labels.byte], labels)


def read_python(path: Path, labels: Labels) -> tuple[Tensor, Tensor]:
    """A pickled dictionary with `data` (N, 3072) and a list of labels, read by the restricted reader."""
    content = read_pickle(path)
    for key in ("data", labels.key):
        if key not in content:
            raise ValueError(f"{path}: no entry {key!r}; the file holds {', '.join(content) or 'nothing'}")
    data, values = content["data"], content[labels.key]
    if not isinstance(data, np.ndarray):
        raise ValueError(f"{path}: entry 'data' is a {type(data).__name__}, not an array of bytes")
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 2**63 for v in values):
        raise ValueError(f"{path}: entry {labels.key!r} is not a list of labels")
    check_shape(data.shape, (None, _PIXELS), f"{path}, entry 'data'")
    return _tensors(path, data, np.array(values, np.int64), labels)


def _tensors(path: Path, pixels: np.ndarray, values: np.ndarray, labels: Labels) -> tuple[Tensor, Tensor]:
    check_counts(len(pixels), len(values), str(path))
    targets = torch.from_numpy(values.astype(np.int64))
    check_labels(targets, len(labels.class_names), str(path))
    images = torch.from_numpy(np.array(pixels).reshape(-1, 3, 32, 32))  # (N, 3, 32, 32)
    return images, targets
