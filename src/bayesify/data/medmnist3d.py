"""MedMNIST's 3-D sets: volumes of 28³ or 64³ voxels, with a validation part.

Yang et al., "MedMNIST v2", Scientific Data 2023. One npz file per set: {train,val,test}_images
(N, D, H, W) bytes and {train,val,test}_labels (N, 1).
"""

import os

import numpy as np
import torch

from bayesify.data.checks import check_counts, check_labels, check_shape, whole_numbers
from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, locate, read_npz

FOLDERS = ("medmnist", "medmnist3d", "", "MedMNIST", ".medmnist")

CLASSES: dict[str, tuple[str, ...]] = {
    "organmnist3d": (
        *("liver", "kidney-right", "kidney-left", "femur-right", "femur-left", "bladder"),
        *("heart", "lung-right", "lung-left", "spleen", "pancreas"),
    ),
    "nodulemnist3d": ("benign", "malignant"),
    "adrenalmnist3d": ("normal", "hyperplasia"),
    "fracturemnist3d": ("buckle rib fracture", "nondisplaced rib fracture", "displaced rib fracture"),
    "vesselmnist3d": ("vessel", "aneurysm"),
    "synapsemnist3d": ("inhibitory synapse", "excitatory synapse"),
}


def load(name: str, root: str | os.PathLike[str] | None, *, size: int = 28) -> DataSet:
    """`medmnist3d:<file>`, or the file's name itself.

    size:  28 or 64 voxels a side (`<file>_64.npz`)

    A set that is not in CLASSES is read all the same; its classes are then numbered, up to the largest
    label of its training part.
    """
    file = name.rpartition(":")[2]
    if file in ("", "medmnist3d"):
        raise ValueError(f"data={name!r} lacks the set's name: medmnist3d:<name>, e.g. {', '.join(CLASSES)}")
    if size not in (28, 64):
        raise ValueError(f"size={size!r}: MedMNIST 3-D sets come in 28 and 64")
    stem = file if size == 28 else f"{file}_{size}"
    path = locate(name, data_root(name, root), (*FOLDERS, file), [(f"{stem}.npz",)])[0]
    parts = ("train", "val", "test")
    arrays = read_npz(path, [f"{part}_{kind}" for part in parts for kind in ("images", "labels")])
    train, val, test = (_split(arrays, part, str(path), size) for part in parts)
    class_names = CLASSES.get(file)
    if class_names is None:
        class_names = tuple(str(label) for label in range(int(train.targets.max()) + 1))
    for part, split in zip(parts, (train, val, test), strict=True):
        check_labels(split.targets, len(class_names), f"{path}, array {part}_labels")
    return DataSet.classification(name, train, test, class_names, val=val)


def _split(arrays: dict[str, np.ndarray], part: str, path: str, size: int) -> Split:
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    where = f"{path}, array {part}_images"
    if images.dtype != np.uint8:
        raise ValueError(f"{where}: {images.dtype}, bytes (uint8) are expected")
    check_shape(images.shape, (None, size, size, size), where)
    check_counts(len(images), len(np.atleast_1d(labels)), f"{where} and {part}_labels")
    check_shape(labels.shape, (len(images), 1), f"{path}, array {part}_labels")
    targets = whole_numbers(labels[:, 0], f"{path}, array {part}_labels")
    return Split(torch.from_numpy(images)[:, None], targets)  # (N, 1, D, H, W)
