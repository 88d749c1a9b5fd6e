"""Reading the CIFAR python batches, which are pickles, without running what a pickle may name.

A pickle can call any function it can name. Here it can name four things, none of them numpy's own: a
stand-in for a byte array, its constructor, its dtype, and the latin-1 encoder that Python 3 writes
bytes with. Everything else in the file must be plain: dict, list, tuple, str, bytes, numbers.
"""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np


class _ByteType:
    """Stands for numpy.dtype; the only dtype in these files is unsigned bytes."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise pickle.UnpicklingError(f"array of dtype {code!r}, only bytes (u1) are allowed")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: nothing for single bytes."""


class _ByteArray:
    """Stands for numpy.ndarray: takes the state numpy writes and keeps it as a uint8 array."""

    array: np.ndarray | None = None

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        if not isinstance(dtype, _ByteType) or not isinstance(data, bytes) or math.prod(shape) != len(data):
            raise pickle.UnpicklingError("array whose bytes do not fit its shape or dtype")
        self.array = np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str | bytes) -> bytes:
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"encoding {encoding!r}")
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ByteArray,
    ("numpy", "dtype"): _ByteType,
    ("numpy.core.multiarray", "_reconstruct"): _ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): _ByteArray,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(
    pickle._Unpickler
):  # in Python: the one in C takes as much memory as a number in the file says
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which this reader does not allow")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to data outside the file")


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR python batch: str keys; arrays as uint8, everything else plain."""
    try:
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
        return {_text(key): _plain(value) for key, value in content.items()}
    except Exception as error:  # a damaged pickle raises almost anything
        raise ValueError(
            f"{path}: not a readable CIFAR python batch ({str(error) or 'it ends too early'})"
        ) from None


def _text(key: Any) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _ByteArray) else value
