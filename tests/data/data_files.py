"""Tiny files in the public formats, written for the tests. `WRITERS` has one for every set read from files."""

import gzip
import struct
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np


def random(seed: int = 0) -> np.random.RandomState:
    return np.random.RandomState(seed)


def images(num: int, *shape: int, seed: int = 0) -> np.ndarray:
    return random(seed).randint(0, 256, (num, *shape)).astype(np.uint8)


def labels(num: int, num_classes: int) -> np.ndarray:
    return (np.arange(num) % num_classes).astype(np.uint8)


def write_idx(path: Path, array: np.ndarray, magic: int | None = None) -> Path:
    magic = 0x0800 + array.ndim if magic is None else magic
    content = struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(folder: Path, suffix: str = ".gz", num_train: int = 30, num_test: int = 20) -> None:
    for part, num in (("train", num_train), ("t10k", num_test)):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images(num, 28, 28))
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels(num, 10))


def cifar_record(pixels: np.ndarray, *columns: np.ndarray) -> bytes:
    heads = [c.reshape(-1, 1) for c in columns]
    return np.concatenate([*heads, pixels.reshape(len(pixels), -1)], axis=1).tobytes()


def write_cifar10(folder: Path, num: int = 10) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for k, stem in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        record = cifar_record(images(num, 3, 32, 32, seed=k), labels(num, 10))
        (folder / f"{stem}.bin").write_bytes(record)


def write_cifar100(folder: Path, num: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for k, stem in enumerate(["train", "test"]):
        record = cifar_record(images(num, 3, 32, 32, seed=k), labels(num, 20), labels(num, 100))
        (folder / f"{stem}.bin").write_bytes(record)


def python2_batch(data: np.ndarray, **others: list[int] | list[str] | str) -> bytes:
    """The opcodes Python 2 wrote for {'data': uint8 array, key: a text or a list, …}, as in the public files."""
    names = count(1)

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value + b"q" + bytes([next(names) % 256])  # q: remembered as

    def number(value: int) -> bytes:
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)

    def plain(value: list[int] | list[str] | str | int) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return number(value)
        return b"](" + b"".join(map(plain, value)) + b"e"

    raw = data.tobytes()
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
    dtype += number(-1) + number(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"(" + b"".join(number(n) for n in data.shape) + b"t"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    entries = text(b"data") + array
    for key, value in others.items():
        entries += text(key.encode()) + plain(value)
    return b"\x80\x02}(" + entries + b"u."


def write_svhn(folder: Path, num: int = 12) -> None:
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        content = {"X": images(num, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels(num, 10)[:, None] + 1}
        savemat(folder / f"{part}_32x32.mat", content, do_compression=True)  # version 5, as the public files


def uci_arrays(num: int = 20, features: int = 3, targets: int = 2, splits: int = 2) -> dict[str, np.ndarray]:
    order = np.stack([random(s).permutation(num) for s in range(splits)]).astype(np.uint16)
    x, y = random(1).standard_normal((num, features)), random(2).standard_normal((num, targets))
    return {"X": 5 + 3 * x, "y": 100 + 10 * y, "train": order[:, 4:], "test": order[:, :4]}


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def medmnist_arrays(size: int = 28, num_classes: int = 2) -> dict[str, np.ndarray]:
    arrays = {}
    for k, part in enumerate(("train", "val", "test")):
        arrays[f"{part}_images"] = images(4, size, size, size, seed=k)
        arrays[f"{part}_labels"] = labels(4, num_classes)[:, None]
    return arrays


def write_image(path: Path, width: int, height: int, colour: tuple[int, int, int]) -> Path:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path)
    return path


def write_image_folder(root: Path, parts: tuple[str, ...] = ("train", "val"), num: int = 3) -> None:
    for part in parts:
        for k in range(num):
            write_image(root / part / "blue" / f"{k}.png", 40, 60, (0, 0, 200 + k))
            write_image(root / part / "red" / f"{k}.JPEG", 60, 40, (200 + k, 0, 0))


def write_hugging_face(folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    label = datasets.ClassLabel(names=["no", "yes"])
    kinds = datasets.Features({"x": datasets.Value("float32"), "label": label})
    rows = {"x": [float(i) for i in range(20)], "label": [i % 2 for i in range(20)]}
    datasets.Dataset.from_dict(rows, features=kinds).save_to_disk(folder)


def _uci(file: str) -> Callable[[Path], object]:
    return lambda root: write_npz(root / "uci" / f"{file}.npz", uci_arrays())


WRITERS: dict[str, Callable[[Path], object]] = {
    "mnist": lambda root: write_mnist(root / "MNIST/raw"),
    "fashion_mnist": lambda root: write_mnist(root / "FashionMNIST/raw"),
    "notmnist": lambda root: write_mnist(root / "notMNIST/raw"),
    "cifar10": lambda root: write_cifar10(root / "cifar-10-batches-bin"),
    "cifar100": lambda root: write_cifar100(root / "cifar-100-binary"),
    "svhn": lambda root: write_svhn(root / "svhn"),
    **{
        f"uci_{file}": _uci(file)
        for file in "boston concrete energy kin8nm naval power protein wine_red yacht".split()  # noqa: SIM905
    },
    "adrenalmnist3d": lambda root: write_npz(root / "medmnist/adrenalmnist3d.npz", medmnist_arrays()),
    "medmnist3d:newmnist3d": lambda root: write_npz(root / "medmnist/newmnist3d.npz", medmnist_arrays()),
    "image_folder": write_image_folder,
    "table": lambda root: (root / "train.csv").write_text("a,b,y\n" + "1,x,2\n2,y,3.5\n3,x,1\n" * 10),
    "arrays": lambda root: [
        np.save(root / f"{k}.npy", v) for k, v in (("x", images(20, 9, 9)), ("y", labels(20, 3)))
    ],
    "hugging_face": write_hugging_face,
}
