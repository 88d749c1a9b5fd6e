"""MNIST's idx format: layouts found, and every kind of damage named."""

import gzip
from pathlib import Path

import pytest
import torch
from data_files import images, labels, write_idx, write_mnist

from bayesify.data import load


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw"])
def test_finds_the_usual_layouts(folder: str, suffix: str, tmp_path: Path) -> None:
    write_mnist(tmp_path / folder, suffix)
    ds = load("mnist", tmp_path)
    assert (len(ds.train), len(ds.test), ds.input_shape) == (30, 20, (1, 28, 28))
    assert ds.train.inputs.dtype == torch.uint8
    assert torch.equal(ds.train.inputs[:, 0], torch.from_numpy(images(30, 28, 28)))
    assert ds.train.targets.tolist() == labels(30, 10).tolist()
    assert ds.augment == "none"


@pytest.mark.parametrize("folder", ["FashionMNIST/raw", "fashion-mnist", "data/fashion"])
def test_fashion_mnist_as_torchvision_debian_and_its_authors_lay_it_out(folder: str, tmp_path: Path) -> None:
    write_mnist(tmp_path / folder)
    ds = load("fashion_mnist", tmp_path)
    assert (len(ds.train), len(ds.test), ds.num_outputs) == (30, 20, 10)


def test_class_names(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    assert load("fashion_mnist", tmp_path).class_names[9] == "Ankle boot"
    assert load("notmnist", tmp_path).class_names == tuple("ABCDEFGHIJ")


def test_notmnist_may_have_only_its_test_part(tmp_path: Path) -> None:
    write_mnist(tmp_path / "notMNIST/raw")
    for file in (tmp_path / "notMNIST/raw").glob("train-*"):
        file.unlink()
    ds = load("notmnist", tmp_path)
    assert (len(ds.train), len(ds.test)) == (0, 20)
    with pytest.raises(ValueError, match=r"'notmnist' has no public address"):
        load("notmnist", tmp_path, download=True)


def test_test_only_needs_no_train_files(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for file in tmp_path.glob("train-*"):
        file.unlink()
    assert len(load("mnist", tmp_path, test_only=True).train) == 0
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte or train-images-idx3-ubyte\.gz"):
        load("mnist", tmp_path)


def test_missing_files_are_named_with_folders_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    assert "t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz" in message
    for part in (
        str(tmp_path / "MNIST/raw"),
        str(tmp_path / "mnist"),
        "--data-root",
        "BAYESIFY_DATA",
        "download=True",
    ):
        assert part in message


def damage(root: Path, stem: str, content: bytes | None = None, **replacement: object) -> Path:
    """Write a sound set, then replace one file."""
    write_mnist(root, "")
    path = root / stem
    return write_idx(path, **replacement) if content is None else _put(path, content)


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def expect(root: Path, path: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load("mnist", root)
    assert str(path) in str(caught.value)


IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def test_wrong_magic(tmp_path: Path) -> None:
    path = damage(tmp_path, IMAGES, array=images(20, 28, 28), magic=0x0D03)
    expect(tmp_path, path, "magic number 0x00000d03 where 0x00000803 is expected")


def test_truncated(tmp_path: Path) -> None:
    write_mnist(tmp_path, "")
    path = damage(tmp_path, IMAGES, (tmp_path / IMAGES).read_bytes()[:-1])
    expect(tmp_path, path, r"header \(20, 28, 28\) promises 15680 bytes, the file holds 15679")


def test_longer_than_promised(tmp_path: Path) -> None:
    write_mnist(tmp_path, "")
    path = damage(tmp_path, LABELS, (tmp_path / LABELS).read_bytes() + b"x")
    expect(tmp_path, path, "promises 20 bytes, the file holds more")


def test_empty(tmp_path: Path) -> None:
    expect(tmp_path, damage(tmp_path, LABELS, b""), "0 bytes are too few for an idx header")


def test_wrong_image_size(tmp_path: Path) -> None:
    path = damage(tmp_path, IMAGES, array=images(20, 27, 28))
    expect(tmp_path, path, r"shape \(20, 27, 28\) where \(any, 28, 28\) is expected")


def test_counts_that_differ(tmp_path: Path) -> None:
    damage(tmp_path, LABELS, array=labels(19, 10))
    expect(tmp_path, tmp_path / IMAGES, f"and {LABELS}: 20 inputs but 19 targets")


def test_label_out_of_range(tmp_path: Path) -> None:
    wrong = labels(20, 10)
    wrong[3] = 10
    path = damage(tmp_path, LABELS, array=wrong)
    expect(tmp_path, path, r"label 10 of example 3 is outside 0\.\.9 \(1 such label\)")


def test_one_class_only(tmp_path: Path) -> None:
    write_mnist(tmp_path, "")
    write_idx(tmp_path / "train-labels-idx1-ubyte", 0 * labels(30, 10))
    with pytest.raises(ValueError, match="'mnist', train targets: every label is 0"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("damaged", ["not gzip", "cut", "flipped"])
def test_damaged_gzip(damaged: str, tmp_path: Path) -> None:
    write_mnist(tmp_path)
    path = tmp_path / f"{IMAGES}.gz"
    sound = path.read_bytes()
    flipped = bytearray(sound)
    flipped[len(sound) // 2] ^= 0xFF
    path.write_bytes(
        {"not gzip": gzip.decompress(sound), "cut": sound[:-20], "flipped": bytes(flipped)}[damaged]
    )
    expect(tmp_path, path, "not a readable idx file|promises")
