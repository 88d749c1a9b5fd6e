"""MNIST and its relatives: 28 × 28 grey images in the idx format, gzipped or not."""

import gzip
import math
import os
import struct
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesify.data.checks import check_counts, check_labels, check_shape
from bayesify.data.dataset import DataSet, Split
from bayesify.data.download import Remote, fetch
from bayesify.data.files import RATIO, data_root, locate

_IMAGES, _LABELS = 0x00000803, 0x00000801  # unsigned bytes, in 3 dimensions or 1
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


@dataclass(frozen=True)
class IdxSet:
    """Where one set lies below the root, its classes, and where its files can be had."""

    folders: tuple[str, ...]  # searched in this order; a download goes to the first
    class_names: tuple[str, ...]
    url: str = ""
    md5: tuple[str, ...] = ()  # in the order of _FILES: train images, train labels, test images, test labels
    train_needed: bool = True


SETS: dict[str, IdxSet] = {
    "mnist": IdxSet(
        ("MNIST/raw", "", "mnist", "mnist/raw", "MNIST"),
        tuple("0123456789"),
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion_mnist": IdxSet(
        (
            *("FashionMNIST/raw", "", "fashion_mnist", "fashion_mnist/raw", "FashionMNIST", "fashion-mnist"),
            *("data/fashion", "fashion-mnist/data/fashion"),  # as in its authors' repository
        ),
        (
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    # mostly used as out-of-distribution data for MNIST, for which its test part is enough
    "notmnist": IdxSet(
        ("notMNIST/raw", "", "notmnist", "notmnist/raw", "notMNIST"), tuple("ABCDEFGHIJ"), train_needed=False
    ),
}


def load(
    name: str, root: str | os.PathLike[str] | None, *, download: bool = False, test_only: bool = False
) -> DataSet:
    """One of SETS.

    download:   fetch files that are missing from their public address
    test_only:  leave the training part without examples, as where notMNIST's train files are absent
    """
    base = data_root(name, root)
    test = _read_part(name, base, "test", download)
    try:
        train = test.none() if test_only else _read_part(name, base, "train", download)
    except FileNotFoundError:
        if SETS[name].train_needed:
            raise
        train = test.none()
    return DataSet.classification(name, train, test, SETS[name].class_names)


def _read_part(name: str, root: Path, part: str, download: bool) -> Split:
    described = SETS[name]
    files = [(stem, f"{stem}.gz") for stem in _FILES[part]]
    if download and not described.url:
        raise ValueError(f"download=True: data set {name!r} has no public address; fetch its files by hand")
    get = partial(_download, name, part) if described.url else None
    paths = locate(name, root, described.folders, files, fetch=get, download=download)
    images, labels = read_idx(paths[0], _IMAGES), read_idx(paths[1], _LABELS).long()
    check_shape(tuple(images.shape), (None, 28, 28), str(paths[0]))
    check_counts(len(images), len(labels), f"{paths[0]} and {paths[1].name}")
    check_labels(labels, len(described.class_names), str(paths[1]))
    return Split(images[:, None], labels)  # (N, 1, 28, 28)


def _download(name: str, part: str, root: Path) -> None:
    described = SETS[name]
    stems = [stem for stems in _FILES.values() for stem in stems]
    for stem, md5 in zip(stems, described.md5, strict=True):
        if stem in _FILES[part]:
            fetch(Remote(f"{described.url}{stem}.gz", md5), root / described.folders[0] / f"{stem}.gz")


def read_idx(path: Path, magic: int) -> Tensor:
    """An idx file of unsigned bytes, gzipped if its name ends in .gz. Header: magic, then big-endian sizes."""
    dims = magic & 0xFF
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            head = file.read(4 + 4 * dims)
            if len(head) < 4 + 4 * dims:
                raise ValueError(f"{path}: {len(head)} bytes are too few for an idx header")
            found, *sizes = struct.unpack(f">{1 + dims}I", head)
            if found != magic:
                raise ValueError(f"{path}: magic number 0x{found:08x} where 0x{magic:08x} is expected")
            size = math.prod(sizes)
            # a header that promises more than the file can hold is not believed
            most = path.stat().st_size * (RATIO if path.suffix == ".gz" else 1)
            content = file.read(min(size, most) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a readable idx file ({error})") from None
    if len(content) != size:
        found_size = "more" if len(content) > size else str(len(content))
        raise ValueError(
            f"{path}: the header {tuple(sizes)} promises {size} bytes, the file holds {found_size}"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(sizes).copy())
