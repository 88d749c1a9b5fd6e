"""Draws in a folder: a safetensors file each, and an index of them."""

import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from torch import Tensor
from torch import distributed as dist

from bayesify.atomic import read_header, read_json, read_tensors, sealed_json, write_tensors, write_text
from bayesify.checks import NotNegativeCount, Range, check_content, fits
from bayesify.posteriors.chain.draw_store import DrawKey
from bayesify.rows import Rows

FORMAT = 1
INDEX = "index.json"
NAME = r"draw-(\d+)-(\d+)\.safetensors"
Shapes = Mapping[str, tuple[int, ...]]
#: what it says
LISTED = {"format?": int, "draws": list[list[NotNegativeCount]], "shapes": {"*": list[NotNegativeCount]}}


class DrawFolder:
    """Whoever reads the folder sees whole draws only: files are written beside their names and moved there.

    One process of a group writes. What cannot be written (a full disk) is named in a warning, and the run
    goes on without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, key: DrawKey) -> Path:
        """The file of a draw."""
        return self.path / _name(*key)

    def write(self, key: DrawKey, draw: Mapping[str, Tensor]) -> bool:
        """Is the draw in its file now?"""
        header = {"draw": FORMAT, "chain": key.chain, "step": key.step}
        return _tried(self.file(key), lambda path: write_tensors(path, draw, header))

    def write_index(self, keys: Iterable[DrawKey], shapes: Shapes) -> None:
        """List these draws. Others up to the last step, of a run that was cut off, are removed; those behind it may
        still be named by its best model, and come again."""
        if not _writes():
            return
        keys = list(keys)
        listed = {"format": FORMAT, "draws": [list(p) for p in keys]}
        table = sealed_json({**listed, "shapes": {name: list(shape) for name, shape in shapes.items()}})
        _tried(self.path / INDEX, lambda path: write_text(path, json.dumps(table)))
        names = {self.file(key).name for key in keys}
        last = max((key.step for key in keys), default=-1)
        for file in os.listdir(self.path):
            match = re.fullmatch(NAME, file)
            if match and file not in names and int(match[2]) <= last:
                (self.path / file).unlink(missing_ok=True)

    def read_index(self) -> dict[str, Any]:
        """{"draws": [[chain, step], …], "shapes": {name: shape}}; an error says what is wrong with it."""
        path = self.path / INDEX
        if not path.is_file():
            run = (self.path / "draws" / INDEX).is_file()
            remedy = ", but its folder 'draws' has one: give that" if run else ""
            raise FileNotFoundError(f"{self.path} holds no draws: it has no {INDEX}{remedy}")
        index = read_json(path)
        if isinstance(index, dict) and fits(index.get("format"), Annotated[int, Range(above=FORMAT)]):
            raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify to read it")
        check_content(index, LISTED, path)
        if not all(len(key) == 2 for key in index["draws"]):
            raise ValueError(f"{path} is damaged: draws must be pairs of a chain and a step")
        return index


class DrawFile:
    """A draw in a file of its own. Its bytes are checked when it is first read, its header every time.

    seal:  the fingerprint of the header, where the file of a model names this draw
    """

    def __init__(self, path: Path, seal: int | None = None) -> None:
        self.path, self.seal = path, seal
        self.checked, self.found = False, seal

    def read(self, shapes: Shapes) -> dict[str, Tensor]:
        """Raises where it is damaged, gone, not of these shapes or not the one that was named."""
        if self.path.is_symlink():
            raise ValueError(f"{self.path} is a link: draws are files of the run itself")
        header = read_header(self.path)
        if self.seal not in (None, _fingerprint(header)):
            raise ValueError(f"{self.path} is another draw than the model was saved with")
        if "step" in header and self.path.name != _name(header.get("chain"), header["step"]):
            raise ValueError(f"{self.path} is not the draw of that name")
        draw = read_tensors(self.path, header, checked=self.checked)
        wrong = [name for name, shape in shapes.items() if name not in draw or draw[name].shape != shape]
        if wrong:
            raise ValueError(f"{self.path} is of another network: it differs in {', '.join(wrong[:5])}")
        self.checked = True
        return draw

    def fingerprint(self) -> int:
        """Of its header, which has the checksums of its tensors, and so of all of it."""
        if self.found is None:
            self.found = _fingerprint(read_header(self.path))
        return self.found


class DrawRow(NamedTuple):
    """A draw in the file of a model: a row of every tensor there."""

    draws: Mapping[str, Rows | Tensor]
    row: int

    def read(self, shapes: Shapes) -> dict[str, Tensor]:
        """The row of every tensor."""
        return {name: self.draws[name][self.row] for name in shapes}


class DrawReference(NamedTuple):
    """What the file of a model says of draws that lie beside it: their folder, and the seal of each."""

    folder: Path
    seals: Sequence[int]

    @classmethod
    def made(cls, run: Path, files: Mapping[DrawKey, Any]) -> dict[str, Any] | None:
        """As plain data, for a file in the folder `run`; None where the draws do not lie in one folder inside."""
        if not all(isinstance(file, DrawFile) for file in files.values()):
            return None
        folders = {file.path.parent.resolve() for file in files.values()}
        folder = folders.pop() if len(folders) == 1 else None
        if folder is None or not folder.is_relative_to(run.resolve()) or folder == run.resolve():
            return None
        if any(file.path.name != DrawFolder(folder).file(key).name for key, file in files.items()):
            return None
        name = folder.relative_to(run.resolve()).as_posix()
        return {"folder": name, "seals": [file.fingerprint() for file in files.values()]}

    @classmethod
    def read(cls, path: Path, data: Any) -> "DrawReference":
        """Of the plain data in `path`: a ValueError where the name may lead out of the folder of that file."""
        kinds = {"folder": str, "seals": list}
        if not isinstance(data, dict) or not all(isinstance(data.get(k), t) for k, t in kinds.items()):
            raise ValueError(f"{path} has a damaged header: it does not say where its draws are")
        parts = data["folder"].split("/")
        if not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in parts):
            raise ValueError(f"{path} names draws in {data['folder']!r}: only folders beside it are opened")
        folder = path.parent
        for part in parts:
            folder = folder / part
            if folder.is_symlink():
                raise ValueError(f"{folder} is a link: the draws of {path} must lie in a folder beside it")
        return cls(folder, data["seals"])

    def files(self, keys: Sequence[DrawKey]) -> dict[DrawKey, DrawFile]:
        """The file of every draw; one that is not there is named."""
        if len(keys) != len(self.seals):
            raise ValueError(f"the model names {len(self.seals)} draws in {self.folder}, but has {len(keys)}")
        there = set(os.listdir(self.folder)) if self.folder.is_dir() else set()
        found = [DrawFolder(self.folder).file(key) for key in keys]
        missing = [path.name for path in found if path.name not in there]
        if missing:
            raise FileNotFoundError(
                f"{self.folder} lacks {len(missing)} of {len(keys)} draws of the model, the first is {missing[0]}. "
                f"The file of a run needs the draws beside it: load it in the folder of its run, where bf.save makes "
                f"one file of it that holds all"
            )
        return {key: DrawFile(path, seal) for key, path, seal in zip(keys, found, self.seals, strict=True)}


def _fingerprint(header: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


def _name(chain: Any, step: Any) -> str:
    return f"draw-{chain:03d}-{step:09d}.safetensors" if type(chain) is type(step) is int else ""


def _writes() -> bool:
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _tried(path: Path, write: Callable[[Path], None]) -> bool:
    if not _writes():
        return True
    try:
        write(path)
    except OSError as error:
        warnings.warn(f"{path} could not be written ({error}): it is left out", stacklevel=4)
        return False
    return True
