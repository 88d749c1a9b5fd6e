"""Headers that promise more than there is: they are not believed, and no memory is taken."""

import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mutators import npy_header

from bayesify.cli.inputs import read_examples
from bayesify.data.files import RATIO, read_arrays, read_npz
from bayesify.data.idx import read_idx
from bayesify.data.image_files import decode


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


@pytest.mark.parametrize("shape", [(10**12,), (2**40, 2**40), (-1,), (10**5,)])
def test_npz(shape: tuple[int, ...], tmp_path: Path) -> None:
    with zipfile.ZipFile(path := tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", npy_header(shape) + bytes(64))
    with pytest.raises(ValueError, match=r"x.npz: not a readable npz file \(its header .* does not fit"):
        read_npz(path, ["x"])


def test_an_archive_that_grows(tmp_path: Path) -> None:
    """Its list says so; an array that is not asked for may be large."""
    zeros = np.zeros(2**20, np.uint8)
    np.savez_compressed(path := tmp_path / "x.npz", x=zeros, y=np.arange(3))
    content = path.read_bytes()
    size = struct.pack("<I", len(zeros) + 128)
    assert content.count(size) >= 1  # in the central directory
    path.write_bytes(content.replace(size, struct.pack("<I", RATIO * len(content) + 1)))
    with pytest.raises(ValueError, match=r"x.npz: not a readable npz file \(it would grow beyond measure\)"):
        read_arrays(path)
    assert read_npz(path, ["y"])["y"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["f4", "u1", "?", "<i8", ">f8"])
def test_arrays_are_read_as_numpy_does(kind: str, tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    for each in (array, np.asfortranarray(array), array[:0], array[0, 0, 0]):
        np.savez_compressed(tmp_path / "x.npz", x=each)
        found = read_arrays(tmp_path / "x.npz")["x"]
        assert found.dtype == each.dtype
        assert np.array_equal(found, each)


def test_npy(tmp_path: Path) -> None:
    (path := tmp_path / "x.npy").write_bytes(npy_header((10**12,)) + bytes(64))
    with pytest.raises(ValueError, match=r"not a readable .npy file \(its header .* does not fit"):
        read_examples(path, {"input_shape": [4], "inputs": "floats"}, {"name": "x"})


def test_idx(tmp_path: Path) -> None:
    (path := tmp_path / "x").write_bytes(struct.pack(">4I", 0x803, *(2**32 - 1,) * 3) + bytes(9))
    with pytest.raises(ValueError, match="x: the header .* promises"):
        read_idx(path, 0x803)


def test_a_picture_that_grows(tmp_path: Path) -> None:
    """Of 169 million pixels in a few bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 13_000, 13_000, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(100))), chunk(b"IEND", b""))
    (path := tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    with pytest.raises(ValueError, match="x.png: not a readable JPEG or PNG image .*169000000 pixels"):
        decode(path, 224, 256)
