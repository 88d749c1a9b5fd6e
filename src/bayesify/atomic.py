"""Writing files so that a reader never sees half of one: texts, JSON, CSV, and tensors with a JSON header."""

import csv
import io
import json
import math
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesify.checks import misfit

HEADER = "bayesify"  # the key of our header among the safetensors metadata
SEALED_BY = "header_checksum"
LONGEST = 2**25  # bytes of a text: what JSON can make of them fits into memory
SEAL = f', "{SEALED_BY}": '  # the end of a header: a checksum of what stands before it; older files have none

FACTS = {"aliases": Mapping[str, str], "checksums": Mapping[str, int]}  # of the tensors, in every header


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, sync it, and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    partial = Path(name)
    try:
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut (where the system can)."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """`text` as UTF-8."""
    write_atomically(path, lambda partial: partial.write_bytes(text.encode()))


def read_text(path: Path) -> str:
    """UTF-8 from a file. What is too long for one of ours, or a pipe or device, which may never end, is a
    ValueError."""
    check_is_file(path)
    if path.stat().st_size > LONGEST:
        raise ValueError(f"{path} is too long for a file of bayesify: it has more than {LONGEST:,} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def check_is_file(path: Path) -> None:
    """Raise where something else is in the place of a file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file but a folder, pipe or device: it is not opened; remove it")


def write_json(path: Path, content: Any) -> None:
    """Numbers, texts, lists and tables, laid out for a reader."""
    write_text(path, json.dumps(plain_json(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sealed_json(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table for a JSON file, with a checksum of itself as the last entry."""
    plain = plain_json({key: value for key, value in table.items() if key != SEALED_BY})
    return {**plain, SEALED_BY: zlib.crc32(json.dumps(plain).encode())}


def read_json(path: Path) -> Any:
    """What a JSON file holds, without its checksum. A ValueError says what is wrong with it; of a table that was
    changed since it was written, which people do, a warning."""
    try:
        content = json.loads(read_text(path), parse_constant=_refused)
        json.dumps(content, ensure_ascii=False).encode()  # halves of characters would fail later
    except (ValueError, RecursionError) as error:
        text = str(error) if str(path) in str(error) else f"{path} is damaged: {error}"
        raise ValueError(text) from None
    if not isinstance(content, dict) or SEALED_BY not in content:
        return content
    if content != sealed_json(content):
        warnings.warn(
            f"{path} was changed since bayesify wrote it: it may not say what the run did", stacklevel=2
        )
    return {key: value for key, value in content.items() if key != SEALED_BY}


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def plain_json(value: Any) -> Any:
    """`value` as it comes back from a JSON file, which has no tuples, no NaN and no infinity: those become null."""
    if isinstance(value, Mapping):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as CSV under one header; what a row lacks stays empty."""
    rows, text = list(rows), io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Tensors and a JSON header in one safetensors file. Tied tensors are stored once, with their aliases."""
    stored: dict[str, Tensor] = {}
    first: dict[tuple[Any, ...], str] = {}
    aliases: dict[str, str] = {}
    used: set[int] = set()
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and same in first:
            aliases[name] = first[same]
        else:
            first[same] = name
            stored[name] = _own(tensor, used)
    checksums = {name: _checksum(tensor) for name, tensor in stored.items()}
    facts = {"aliases": aliases, "checksums": checksums, "layout": _layout(stored)}
    text = sealed(json.dumps({**header, **facts})[:-1])
    write_atomically(path, lambda partial: save_file(stored, partial, metadata={HEADER: text}))


def sealed(text: str) -> str:
    """A JSON table without its last brace, with the checksum of itself and the brace."""
    return f"{text}{SEAL}{zlib.crc32(text.encode())}}}"


def _own(tensor: Tensor, used: set[int]) -> Tensor:
    """On the CPU with a storage of its own, as safetensors asks for; copied only where it has none."""
    here = tensor.detach().to("cpu").contiguous()
    storage = here.untyped_storage()
    whole = storage.nbytes() == here.numel() * here.element_size() and storage.data_ptr() not in used
    used.add(storage.data_ptr())
    return here if whole else here.clone()


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header of one of our files; a ValueError says what is wrong with any other."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file in it, e.g. {path / 'model.safetensors'}")
    check_is_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file ({error})") from None
    if HEADER not in metadata:
        raise ValueError(
            f"{path} is a safetensors file, but bayesify did not write it (no {HEADER!r} header)"
        )
    text = metadata[HEADER]
    if SEAL in text and sealed(text.rpartition(SEAL)[0]) != text:
        raise ValueError(f"{path} has a damaged header (its bytes have changed)")
    try:
        header = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} has a damaged header ({error})") from None
    wrong = misfit(header, FACTS)
    if wrong is not None:
        raise ValueError(
            f"{path} has a damaged header ({wrong or 'all'} is missing, or is not what bayesify writes)"
        )
    return {key: value for key, value in header.items() if key != SEALED_BY}


def stored_shapes(path: Path, header: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in a file; nothing is read."""
    with safe_open(path, framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    known = {alias: shapes[name] for alias, name in header["aliases"].items() if name in shapes}
    return {**shapes, **known}


def read_tensors(path: Path, header: Mapping[str, Any], device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors, checked against the checksums in the header; aliases point to the same tensor."""
    tensors = {name: tensor.to(device) for name, tensor in checked_tensors(path, header)}
    lost = [name for name in header["aliases"].values() if name not in tensors]
    if lost:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(map(str, lost))}")
    return {**tensors, **{alias: tensors[name] for alias, name in header["aliases"].items()}}


def checked_tensors(path: Path, header: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Every stored tensor with its name, one at a time; a ValueError where the file is not what was written."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        missing = sorted(set(header["checksums"]) - set(names))
        if missing:
            raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
        empty: dict[str, Tensor] = {}  # dtypes and shapes
        for name in names:
            tensor = file.get_tensor(name)
            if _checksum(tensor) != header["checksums"].get(name):
                raise ValueError(f"{path} is damaged: the bytes of tensor {name!r} have changed")
            empty[name] = tensor.to("meta")
            yield name, tensor
    if header.get("layout", layout := _layout(empty)) != layout:
        raise ValueError(f"{path} is damaged: the shape or dtype of a tensor has changed")


def _layout(tensors: Mapping[str, Tensor]) -> int:
    """A checksum of names, dtypes and shapes."""
    facts = sorted(f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items())
    return zlib.crc32("\n".join(facts).encode())


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0
