"""Street View House Numbers, cropped digits: 32 × 32 colour images in MATLAB files."""

import os
from pathlib import Path

import numpy as np
import torch

from bayesify.data.checks import check_counts, check_labels, check_shape, whole_numbers
from bayesify.data.dataset import DataSet, Split
from bayesify.data.download import Remote, fetch
from bayesify.data.files import data_root, import_optional, locate

FOLDERS = ("", "svhn", "SVHN")
ADDRESS = "http://ufldl.stanford.edu/housenumbers/{}_32x32.mat"
MD5 = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}
REMOTES = {part: Remote(ADDRESS.format(part), md5) for part, md5 in MD5.items()}


def load(
    name: str, root: str | os.PathLike[str] | None, *, download: bool = False, test_only: bool = False
) -> DataSet:
    """The train and test parts (not `extra`). Needs scipy.

    download:   fetch files that are missing from their public address
    test_only:  leave the training part without examples
    """
    base = data_root(name, root)
    test = _read_part(name, base, "test", download)
    train = test.none() if test_only else _read_part(name, base, "train", download)
    return DataSet.classification(name, train, test, tuple("0123456789"))


def _read_part(name: str, root: Path, part: str, download: bool) -> Split:
    file = f"{part}_32x32.mat"

    def get(base: Path) -> None:
        fetch(REMOTES[part], base / "svhn" / file)

    return read_mat(locate(name, root, FOLDERS, [(file,)], fetch=get, download=download)[0])


def read_mat(path: Path) -> Split:
    """X (32, 32, 3, N) bytes and y (N, 1), where the label 10 stands for the digit 0."""
    loadmat = import_optional("scipy.io", "scipy", "reading SVHN's .mat files").loadmat
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # scipy passes on zlib, struct and its own errors
        raise ValueError(f"{path}: not a readable MATLAB file ({error})") from None
    for key in ("X", "y"):
        if key not in content:
            raise ValueError(f"{path}: array {key} is missing")
    images, labels = content["X"], content["y"].reshape(-1)
    check_shape(images.shape, (32, 32, 3, None), f"{path}, array X")
    check_counts(images.shape[3], len(labels), str(path))
    if images.dtype != np.uint8:
        raise ValueError(f"{path}: array X is {images.dtype}, bytes (uint8) are expected")
    targets = whole_numbers(labels, f"{path}, array y")
    check_labels(targets - 1, 10, f"{path}, array y − 1")
    pixels = np.ascontiguousarray(images.transpose(3, 2, 0, 1))  # (N, 3, 32, 32)
    return Split(torch.from_numpy(pixels), targets % 10)
