"""Ways to spoil a file. Blind ones know nothing of its format; sealed ones change what it says and make its checksums
fit, so that the readers' own checks of every field are met. All choices come from the generator that is given."""

import io
import json
import math
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from bayesify.atomic import HEADER, SEALED_BY, read_header, sealed, sealed_json, write_tensors

Rng = random.Random


# -- bytes ------------------------------------------------------------------------------------------------
def _flip(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _piece(data: bytes, rng: Rng) -> tuple[int, int]:
    """Start and end of a piece; half of them near the start, where headers are."""
    start = rng.randrange(len(data) if rng.random() < 0.5 else min(len(data), 512))
    return start, min(len(data), start + rng.choice((1, 4, 64, 4096)))


def _delete(data: bytes, rng: Rng) -> bytes:
    start, end = _piece(data, rng)
    return data[:start] + data[end:]


def _insert(data: bytes, rng: Rng) -> bytes:
    start, end = _piece(data, rng)
    return data[:start] + rng.choice((data[start:end], rng.randbytes(end - start), b"9" * 20)) + data[start:]


def _overwrite(data: bytes, rng: Rng) -> bytes:
    start, end = _piece(data, rng)
    return data[:start] + rng.choice((b"\0", b"\xff", b"9", b"\x1b")) * (end - start) + data[end:]


BLIND: dict[str, Callable[[bytes, Rng], bytes]] = {
    "bits flipped": _flip,
    "cut off": lambda data, rng: data[: rng.randrange(len(data))],
    "bytes deleted": _delete,
    "bytes inserted": _insert,
    "bytes overwritten": _overwrite,
    "empty": lambda data, rng: b"",
    "zeros": lambda data, rng: bytes(len(data)),
    "longer": lambda data, rng: data + rng.randbytes(rng.choice((1, 4096))),
    "twice": lambda data, rng: data + data,
}
#: flips and pieces are many things, an empty file is one
_WEIGHTS = (8, 3, 4, 4, 4, 1, 1, 1, 1)


def blind(path: Path, rng: Rng, others: list[Path]) -> str:
    """Spoil the bytes of a file, or put one of the `others` in its place; what was done, in words."""
    if len(others) > 1 and rng.random() < 0.05:
        other = rng.choice([each for each in others if each != path])
        path.write_bytes(other.read_bytes())
        return f"{path.name}: {other.name} in its place"
    name = rng.choices([*BLIND], _WEIGHTS)[0]
    data = path.read_bytes()
    path.write_bytes(BLIND[name](data, rng) if data else b"x")
    return f"{path.name}: {name}"


# -- what a file says -------------------------------------------------------------------------------------
def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


#: in place of any value
JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, -5, 3.5, 2**31, 2**63, 10**40, 1e30, -1e30, 1e308, math.nan, math.inf),
    *("", "x", "x" * 10_000, "\x1b]0;pwned\x07", "os:system", "../../etc", "\ud800", "(a+)+$", "1e999"),
    *([], {}, [[]], [None], [{}], {"a": {"b": [1]}}, [1e30] * 3, _deep(200), {"name": None}),
)


def spoiled(value: Any, rng: Rng) -> tuple[str, Any]:
    """JSON data with one thing changed somewhere in it: where and how, in words, and the data."""
    value = json.loads(json.dumps(value))
    path: list[Any] = []
    here, holder = value, None
    while isinstance(here, dict | list) and here and (holder is None or rng.random() < 0.8):
        key = rng.choice([*here]) if isinstance(here, dict) else rng.randrange(len(here))
        path.append(key)
        holder, here = here, here[key]
    if holder is None:
        return "all of it", rng.choice(JUNK)
    key, how = path[-1], rng.choice(("junk", "junk", "junk", "junk", "delete", "nudge", "wrap"))
    if how == "delete":
        del holder[key]
    elif how == "wrap":
        holder[key] = rng.choice(([here], {"x": here}, str(here)))
    elif how == "nudge" and isinstance(here, int | float) and not isinstance(here, bool):
        holder[key] = rng.choice((here + 1, here - 1, -here, here * 1000, float(here)))
    else:
        how, holder[key] = "junk", rng.choice(JUNK)
    shown = "" if how == "delete" else f" → {holder[key]!r:.40}"
    return f"{'.'.join(map(str, path))[:60]} {how}{shown}", value


def sealed_text(path: Path, rng: Rng) -> str:
    """Of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    how, content = spoiled(content, rng)
    path.write_text(json.dumps(sealed_json(content) if isinstance(content, dict) else content))
    return f"{path.name}: {how}"


def sealed_header(path: Path, rng: Rng) -> str:
    """Of one of our safetensors files: its header, its lists of names and checksums among it."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()[HEADER])
    del header[SEALED_BY]
    if rng.random() < 0.85:  # the checksums are many names, and one thing
        how, part = spoiled({k: v for k, v in header.items() if k != "checksums"}, rng)
        header = {**part, "checksums": header["checksums"]} if isinstance(part, dict) else part
    else:
        how, header = spoiled(header, rng)
    text = json.dumps(header)
    save_file(tensors, path, metadata={HEADER: sealed(text[:-1]) if isinstance(header, dict) else text})
    return f"{path.name}: {how}"


def _spoiled_array(array: np.ndarray, rng: Rng) -> np.ndarray:
    flat = array.reshape(-1)
    shapes = [
        array[None],
        flat,
        flat[:0],
        *([flat[0].reshape(())] if len(flat) else []),
        np.concatenate([flat, flat]),
    ]
    shapes += [array[:0], array[:1], np.concatenate([array, array])] if array.ndim else []
    kinds = [array.astype(kind) for kind in (np.int64, np.float64, np.bool_, np.uint8)]
    filled = [np.full_like(array, value) for value in (0, 1, 127)]
    if array.dtype.kind == "f":
        filled += [np.full_like(array, value) for value in (np.nan, np.inf, -1, 1e30)]
    return rng.choice([*shapes, *kinds, *filled])


DTYPES = (torch.float16, torch.complex64, torch.float8_e4m3fn, torch.uint16, torch.bfloat16)


def sealed_tensors(path: Path, rng: Rng) -> str:
    """Of one of our safetensors files: one of its tensors."""
    header = read_header(path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    name = rng.choice([*tensors])
    how = rng.random()
    if how < 0.15:
        del tensors[name]
    elif how < 0.3:
        tensors[name] = tensors[name].to(rng.choice(DTYPES))
    else:
        with np.errstate(all="ignore"):
            tensors[name] = torch.from_numpy(np.array(_spoiled_array(tensors[name].numpy(), rng)))
    write_tensors(path, tensors, {k: v for k, v in header.items() if k not in ("checksums", "layout")})
    return f"{path.name}: tensor {name} is now {tuple(getattr(tensors.get(name), 'shape', ['gone']))}"


def sealed_npz(path: Path, rng: Rng) -> str:
    """Of an npz: an array that is another, or whose header promises what is not there."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    name = rng.choice([*arrays])
    how = rng.choice(("array", "array", "gone", "header", "pickled"))
    if how == "gone":
        del arrays[name]
    with zipfile.ZipFile(path, "w", rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))) as archive:
        for key, array in arrays.items():
            file = io.BytesIO()
            with np.errstate(all="ignore"):
                changed = _spoiled_array(array, rng) if key == name and how == "array" else array
            np.save(file, np.array([{}]) if key == name and how == "pickled" else changed)
            data = file.getvalue()
            if key == name and how == "header":
                data = npy_header((rng.choice((10**6, 10**12, 2**63, -1)),)) + data[-8:]
            archive.writestr(f"{key}.npy", data)
    return f"{path.name}: {name} {how}"


def npy_header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    """The start of an npy file that promises so much."""
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
