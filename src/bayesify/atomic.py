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
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesify.checks import misfit
from bayesify.rows import Rows, rows_of

HEADER = "bayesify"  # the key of our header among the safetensors metadata
SEALED_BY = "header_checksum"
LONGEST = 2**25  # bytes of a text: what JSON can make of them fits into memory
SEAL = f', "{SEALED_BY}": '  # the end of a header: a checksum of what stands before it; older files have none

#: of tensors, as safetensors calls them; with others torch cannot compute
DTYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64", "C64"}
FACTS = {"aliases": Mapping[str, str], "checksums": Mapping[str, int]}  # of the tensors, in every header


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, sync it, and rename it into place.

    It is locked meanwhile, and what killed writers of the same file have left is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_partial_files(path.parent, path.name)
    handle, partial = _partial_file(path)
    try:
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        os.close(handle)
    _sync_folder(path.parent)


def _partial_file(path: Path) -> tuple[int, Path]:
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        if lock(handle) and os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # somebody took it for a left-over before it was locked


def clear_partial_files(folder: Path, name: str = "") -> None:
    """Remove what killed writers of the file `name`, or of any, have left in a folder; living ones hold a lock."""
    found = os.listdir(folder) if folder.is_dir() else []
    for each in (n for n in found if n.startswith(f".{name}") and n.endswith(".partial")):
        with suppress(OSError):  # it is gone, or another's
            handle = os.open(folder / each, os.O_RDWR | getattr(os, "O_NONBLOCK", 0))
            try:
                if lock(handle):
                    (folder / each).unlink()
            finally:
                os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file until it is closed, or its process ends; False where another has. Systems and disks without
    such locks say True."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


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
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file ({error})") from None
    if HEADER not in metadata:
        raise ValueError(
            f"{path} is a safetensors file, but bayesify did not write it (no {HEADER!r} header)"
        )
    foreign = [f"{name!r} is {kind}" for name, kind in kinds.items() if kind not in DTYPES]
    if foreign:
        raise ValueError(f"{path}: tensor {foreign[0]}, a dtype that models are not stored in")
    text = metadata[HEADER]
    if SEAL in text and sealed(text.rpartition(SEAL)[0]) != text:
        raise ValueError(f"{path} has a damaged header (its bytes have changed)")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
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


def read_tensors(
    path: Path,
    header: Mapping[str, Any],
    by_row: Callable[[str], bool] = lambda name: False,
    checked: bool = False,
) -> dict[str, Any]:
    """All tensors, checked against the checksums in the header; aliases point to the same tensor.

    by_row:   of tensors with these names come `Rows`, which leave them in the file
    checked:  their bytes were checked before
    """
    tensors = dict(checked_tensors(path, header, by_row, checked))
    lost = [name for name in header["aliases"].values() if name not in tensors]
    if lost:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(map(str, lost))}")
    return {**tensors, **{alias: tensors[name] for alias, name in header["aliases"].items()}}


def checked_tensors(
    path: Path,
    header: Mapping[str, Any],
    by_row: Callable[[str], bool] = lambda name: False,
    checked: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Every stored tensor with its name, one at a time; a ValueError where the file is not what was written."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        missing = sorted(set(header["checksums"]) - set(names))
        if missing:
            raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
        rows = rows_of(path, [name for name in names if by_row(name)])
        kinds: dict[str, Any] = {}  # dtypes and shapes
        for name in names:
            tensor: Any = rows[name] if name in rows else file.get_tensor(name)
            if not checked and _checksum(tensor) != header["checksums"].get(name):
                raise ValueError(f"{path} is damaged: the bytes of tensor {name!r} have changed")
            kinds[name] = tensor if name in rows else tensor.to("meta")
            yield name, tensor
    if header.get("layout", layout := _layout(kinds)) != layout:
        raise ValueError(f"{path} is damaged: the shape or dtype of a tensor has changed")


def _layout(tensors: Mapping[str, Any]) -> int:
    """A checksum of names, dtypes and shapes."""
    facts = sorted(f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items())
    return zlib.crc32("\n".join(facts).encode())


def _checksum(tensor: Tensor | Rows) -> int:
    if isinstance(tensor, Rows):
        return reduce(lambda found, i: _checksum_of(tensor[i], found), range(len(tensor)), 0)
    return _checksum_of(tensor)


def _checksum_of(tensor: Tensor, before: int = 0) -> int:
    """CRC-32 of the bytes that `before` is of, and these."""
    if not tensor.numel():
        return before
    flat = tensor.contiguous().reshape(-1)  # of one number, torch keeps any stride
    return zlib.crc32(flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data, before)
