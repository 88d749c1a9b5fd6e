"""MedMNIST's 3-D npz files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import labels, medmnist_arrays, write_npz

from bayesify.data import load


@pytest.mark.parametrize("folder", ["", "medmnist", "medmnist3d", "adrenalmnist3d"])
def test_reads_three_parts(folder: str, tmp_path: Path) -> None:
    arrays = medmnist_arrays()
    write_npz(tmp_path / folder / "adrenalmnist3d.npz", arrays)
    ds = load("adrenalmnist3d", tmp_path)
    assert (ds.input_shape, ds.class_names, ds.augment) == (
        (1, 28, 28, 28),
        ("normal", "hyperplasia"),
        "none",
    )
    for part, split in (("train", ds.train), ("val", ds.val), ("test", ds.test)):
        assert torch.equal(split.inputs[:, 0], torch.from_numpy(arrays[f"{part}_images"]))
        assert split.targets.tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="already has a validation part"):
        ds.with_validation(0.5)


def test_size_64_is_another_file(tmp_path: Path) -> None:
    write_npz(tmp_path / "adrenalmnist3d_64.npz", medmnist_arrays(64))
    assert load("adrenalmnist3d", tmp_path, size=64).input_shape == (1, 64, 64, 64)
    with pytest.raises(FileNotFoundError, match=r"adrenalmnist3d\.npz not found"):
        load("adrenalmnist3d", tmp_path)
    with pytest.raises(ValueError, match="size=32: MedMNIST 3-D sets come in 28 and 64"):
        load("adrenalmnist3d", tmp_path, size=32)


def test_any_name_after_the_colon(tmp_path: Path) -> None:
    write_npz(tmp_path / "fracturemnist3d.npz", medmnist_arrays(num_classes=3))
    write_npz(tmp_path / "othermnist3d.npz", medmnist_arrays(num_classes=4))
    assert load("medmnist3d:fracturemnist3d", tmp_path).class_names[2] == "displaced rib fracture"
    assert load("medmnist3d:othermnist3d", tmp_path).class_names == ("0", "1", "2", "3")
    for name in ("medmnist3d", "medmnist3d:"):
        with pytest.raises(ValueError, match=r"lacks the set's name: medmnist3d:<name>, e.g. organmnist3d"):
            load(name, tmp_path)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"val_labels": labels(3, 2)[:, None]}, "array val_images and val_labels: 4 inputs but 3 targets"),
        (
            {"test_labels": labels(4, 3)[:, None]},
            r"array test_labels: label 2 of example 2 is outside 0\.\.1",
        ),
        ({"test_labels": labels(4, 2)}, r"array test_labels: shape \(4,\) where \(4, 1\)"),
        ({"train_images": np.zeros((4, 28, 28), np.uint8)}, r"array train_images: shape \(4, 28, 28\)"),
        ({"train_images": np.full((4, 28, 28, 28), np.nan)}, "array train_images: float64, bytes"),
        ({"train_labels": np.full((4, 1), np.nan)}, "array train_labels: float64 values that are not whole"),
        ({"train_labels": np.zeros((4, 1), np.uint8)}, "train targets: every label is 0"),
    ],
)
def test_wrong_content(replaced: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "adrenalmnist3d.npz", {**medmnist_arrays(), **replaced})
    with pytest.raises(ValueError, match=message):
        load("adrenalmnist3d", tmp_path)
