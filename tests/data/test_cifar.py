"""CIFAR: binary and python versions, and every kind of damage named."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import cifar_record, images, labels, python2_batch, write_cifar10, write_cifar100

from bayesify.data import load
from bayesify.data.cifar import CLASSES_20, CLASSES_100
from bayesify.data.safe_pickle import read_pickle


def write_python10(folder: Path, num: int = 10, **replaced: list[int]) -> None:
    """CIFAR-10 as Python 2 pickled it, with all its entries; the pixels of `write_cifar10`."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, stem in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        pixels = images(num, 3, 32, 32, seed=k).reshape(num, -1)
        others = {
            "batch_label": f"training batch {k + 1} of 5",
            "labels": labels(num, 10).tolist(),
            "filenames": [f"domestic_cat_s_{i:06d}.png" for i in range(num)],
        }
        (folder / stem).write_bytes(python2_batch(pixels, **{**others, **replaced}))


def rewrite_by_python3(folder: Path) -> None:
    """The same dictionaries as a tool of today would store them: keys and texts as bytes, protocol 2."""
    for path in folder.iterdir():
        content = read_pickle(path)
        stored = {key.encode(): value for key, value in content.items()}
        assert set(stored) == {b"data", b"labels", b"filenames", b"batch_label"}
        path.write_bytes(pickle.dumps(stored, protocol=2))


@pytest.mark.parametrize("folder", ["", "cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_finds_the_usual_layouts(folder: str, tmp_path: Path) -> None:
    write_cifar10(tmp_path / folder)
    ds = load("cifar10", tmp_path)
    assert (len(ds.train), len(ds.test), ds.input_shape, ds.num_outputs) == (50, 10, (3, 32, 32), 10)
    assert (ds.train.inputs.dtype, ds.augment) == (torch.uint8, "crop_flip")
    assert torch.equal(ds.train.inputs[10:20], torch.from_numpy(images(10, 3, 32, 32, seed=1)))
    assert ds.test.targets.tolist() == labels(10, 10).tolist()


@pytest.mark.parametrize("writer", ["python 2", "python 3"])
def test_python_version_holds_the_same_numbers(writer: str, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "bin/cifar-10-batches-bin")
    write_python10(tmp_path / "py/cifar-10-batches-py")
    if writer == "python 3":
        rewrite_by_python3(tmp_path / "py/cifar-10-batches-py")
    binary, python = load("cifar10", tmp_path / "bin"), load("cifar10", tmp_path / "py")
    for part in ("train", "test"):
        assert torch.equal(getattr(binary, part).inputs, getattr(python, part).inputs)
        assert torch.equal(getattr(binary, part).targets, getattr(python, part).targets)


def test_fine_and_coarse_labels(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-binary")
    fine, coarse = load("cifar100", tmp_path), load("cifar100", tmp_path, labels="coarse")
    assert (fine.num_outputs, coarse.num_outputs) == (100, 20)
    assert fine.train.targets.tolist() == labels(40, 100).tolist()
    assert coarse.train.targets.tolist() == labels(40, 20).tolist()
    assert torch.equal(fine.train.inputs, coarse.train.inputs)
    with pytest.raises(
        ValueError, match="labels of cifar100='rough' does not exist; choose from coarse, fine"
    ):
        load("cifar100", tmp_path, labels="rough")


@pytest.mark.parametrize("kind", ["fine", "coarse"])
def test_cifar100_python_version(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for stem in ("train", "test"):
        others = {
            "filenames": [f"bos_taurus_s_{i:06d}.png" for i in range(4)],
            "batch_label": f"{stem}ing batch 1 of 1",
            "fine_labels": labels(4, 100).tolist(),
            "coarse_labels": labels(4, 20)[::-1].tolist(),
        }
        (folder / stem).write_bytes(python2_batch(images(4, 3072), **others))
    ds = load("cifar100", tmp_path, labels=kind)
    assert ds.train.targets.tolist() == ([0, 1, 2, 3] if kind == "fine" else [3, 2, 1, 0])


def test_class_names_are_complete_and_alphabetical() -> None:
    assert (len(set(CLASSES_100)), len(set(CLASSES_20))) == (100, 20)
    assert list(CLASSES_100) == sorted(CLASSES_100)
    assert (CLASSES_100[0], CLASSES_100[99], CLASSES_20[4]) == ("apple", "worm", "fruit_and_vegetables")


def test_test_only_needs_no_train_files(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    (tmp_path / "train.bin").unlink()
    ds = load("cifar100", tmp_path, test_only=True)
    assert (len(ds.train), len(ds.test)) == (0, 40)
    with pytest.raises(FileNotFoundError, match=r"'cifar100': train.bin or train not found.*download=True"):
        load("cifar100", tmp_path)


def test_only_the_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin/data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"'cifar10': data_batch_3.bin or data_batch_3 not found"):
        load("cifar10", tmp_path)


def expect(root: Path, path: Path, message: str, name: str = "cifar10") -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(name, root)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 3072, 30729])
def test_truncated_binary(size: int, tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:size])
    expect(tmp_path, path, f"{size} bytes are not a whole number of 3073-byte records")


def test_label_out_of_range_binary(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "test_batch.bin"
    path.write_bytes(cifar_record(images(2, 3, 32, 32), np.array([0, 11], np.uint8)))
    expect(tmp_path, path, r"label 11 of example 1 is outside 0\.\.9")


def test_coarse_label_out_of_range(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    path = tmp_path / "test.bin"
    path.write_bytes(cifar_record(images(1, 3, 32, 32), np.array([20], np.uint8), np.array([3], np.uint8)))
    with pytest.raises(ValueError, match=r"label 20 of example 0 is outside 0\.\.19"):
        load("cifar100", tmp_path, labels="coarse")


def test_one_class_only(tmp_path: Path) -> None:
    write_python10(tmp_path, labels=[4] * 10)
    with pytest.raises(ValueError, match="'cifar10', train targets: every label is 4"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python2_batch(images(2, 3072), labels=[0]), "2 inputs but 1 targets"),
        (python2_batch(images(2, 3072), labels=[0, 10]), r"label 10 of example 1 is outside 0\.\.9"),
        (python2_batch(images(2, 3072), labels=[0, -1]), "entry 'labels' is not a list of labels"),
        (python2_batch(images(2, 3071), labels=[0, 1]), r"'data': shape \(2, 3071\) where \(any, 3072\)"),
        (python2_batch(images(2, 3072)), "no entry 'labels'; the file holds data"),
        (pickle.dumps({"data": [1], "labels": [1]}), "entry 'data' is a list, not an array of bytes"),
        (pickle.dumps([1, 2]), "it holds a list, not a dictionary"),
        (python2_batch(images(2, 3072), labels=[0, 1])[:-400], "not a readable CIFAR python batch"),
        (b"", "not a readable CIFAR python batch"),
    ],
)
def test_damaged_python_batch(content: bytes, message: str, tmp_path: Path) -> None:
    write_python10(tmp_path)
    path = tmp_path / "test_batch"
    path.write_bytes(content)
    expect(tmp_path, path, message)
