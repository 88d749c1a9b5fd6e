"""Tensors that stay in their file: rows are read by their place, into memory of their own."""

import json
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor


class Rows:
    """A tensor (n, *shape) in a file, of which rows are read when they are asked for; memory holds none of it.

    The file stays open: who replaces it by another changes nothing here.
    """

    def __init__(self, file: "OpenFile", dtype: torch.dtype, shape: Iterable[int], start: int) -> None:
        self.file, self.dtype, self.shape, self.start = file, dtype, torch.Size(shape), start
        self.row_size = self.shape[1:].numel() * dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> Tensor:
        row = own_memory((self.row_size,), torch.uint8)
        self.file.read_into(row.numpy(), self.start + index * self.row_size)
        return row.view(self.dtype).view(self.shape[1:])


def own_memory(shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """An empty tensor whose memory goes back to the system with it. Blocks of the heap, taken and freed between
    outputs that stay, leave holes: a thousand draws of 4 MB, one after the other, came to 1.5 GB."""
    shape = torch.Size(shape)
    size = shape.numel() * dtype.itemsize
    if size < 2**17 or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.empty(shape, dtype=dtype)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


class OpenFile:
    """A file that several threads and forked processes read at once, none moving the place of the others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.lock = threading.Lock()

    def read_into(self, buffer: Any, start: int) -> None:
        """Fill `buffer` with the bytes that begin at `start`."""
        view, done = memoryview(buffer), 0
        while done < len(view):
            if hasattr(os, "preadv"):
                count = os.preadv(self.handle, [view[done:]], start + done)
            else:
                with self.lock:
                    os.lseek(self.handle, start + done, os.SEEK_SET)
                    found = os.read(self.handle, len(view) - done)
                view[done : done + len(found)], count = found, len(found)
            if not count:
                raise ValueError(f"{self.path} is damaged: it has become shorter")
            done += count

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)

    def __deepcopy__(self, memo: Any) -> "OpenFile":
        return self

    def __reduce__(self) -> Any:
        return OpenFile, (self.path,)


def rows_of(path: Path, names: Iterable[str]) -> dict[str, Rows]:
    """Tensors of a safetensors file by rows: its header says where each begins."""
    names = list(names)
    if not names:
        return {}
    file = OpenFile(path)
    size = bytearray(8)
    file.read_into(size, 0)
    text = bytearray(int.from_bytes(size, "little"))
    file.read_into(text, 8)
    places = json.loads(text)
    found: dict[str, Rows] = {}
    with safe_open(path, framework="pt") as same:
        for name in names:
            dtype = same.get_slice(name)[:0].dtype
            begin = 8 + len(text) + places[name]["data_offsets"][0]
            found[name] = Rows(file, dtype, places[name]["shape"], begin)
    return found
