"""SVHN's MATLAB files."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import images, labels, write_svhn
from scipy.io import savemat

from bayesify.data import load


@pytest.mark.parametrize("folder", ["", "svhn", "SVHN"])
def test_reads_images_and_labels(folder: str, tmp_path: Path) -> None:
    write_svhn(tmp_path / folder)
    ds = load("svhn", tmp_path)
    assert (len(ds.train), len(ds.test), ds.input_shape, ds.augment) == (12, 12, (3, 32, 32), "none")
    expected = torch.from_numpy(images(12, 32, 32, 3).transpose(0, 3, 1, 2).copy())
    assert torch.equal(ds.train.inputs, expected)
    assert ds.train.targets.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]  # the file's 10 is the digit 0


def test_test_only_needs_no_train_file(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    (tmp_path / "train_32x32.mat").unlink()
    assert len(load("svhn", tmp_path, test_only=True).train) == 0
    with pytest.raises(FileNotFoundError, match=r"train_32x32.mat not found.*download=True"):
        load("svhn", tmp_path)


def expect(root: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load("svhn", root)
    assert str(root / "train_32x32.mat") in str(caught.value)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"y": labels(12, 10)[:, None]}, r"array y − 1: label -1 of example 0 is outside 0\.\.9"),
        ({"y": labels(12, 12)[:, None] + 1}, "array y − 1: label 10 of example 10"),
        ({"y": np.full((12, 1), 1.5)}, "array y: float64 values that are not whole numbers"),
        ({"y": labels(11, 10)[:, None] + 1}, "12 inputs but 11 targets"),
        ({"X": images(12, 32, 32, 3)}, r"array X: shape \(12, 32, 32, 3\) where \(32, 32, 3, any\)"),
        ({"X": images(12, 32, 32, 3).transpose(1, 2, 3, 0) / 255}, "array X is float64, bytes"),
    ],
)
def test_wrong_content(replaced: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    write_svhn(tmp_path)
    sound = {"X": images(12, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels(12, 10)[:, None] + 1}
    savemat(tmp_path / "train_32x32.mat", {**sound, **replaced})
    expect(tmp_path, message)


def test_missing_array(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"X": images(2, 2)})
    expect(tmp_path, "array y is missing")


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_truncated(size: int, tmp_path: Path) -> None:
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:size])
    expect(tmp_path, "not a readable MATLAB file")


def test_without_scipy_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_svhn(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"SVHN's .mat files needs scipy.*pip install scipy"):
        load("svhn", tmp_path)
