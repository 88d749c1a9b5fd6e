"""Draws in a folder: a safetensors file each, and an index of them."""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch import distributed as dist

from bayesify.atomic import read_header, read_tensors, write_tensors, write_text
from bayesify.posteriors.chain.draw_store import DrawKey

FORMAT = 1
INDEX = "index.json"


class DrawFolder:
    """Whoever reads the folder sees whole draws only: files are written beside their names and moved there.

    One process of a group writes. What cannot be written (a full disk) is named in a warning, and the run
    goes on without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, key: DrawKey) -> Path:
        """The file of a draw."""
        return self.path / f"draw-{key.chain:03d}-{key.step:09d}.safetensors"

    def write(self, key: DrawKey, draw: Mapping[str, Tensor]) -> bool:
        """Is the draw in its file now?"""
        header = {"draw": FORMAT, "chain": key.chain, "step": key.step}
        return _tried(self.file(key), lambda path: write_tensors(path, draw, header))

    def write_index(self, keys: Iterable[DrawKey], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """List these draws; files that are not on the list (of a run that was cut off) are removed."""
        if not _writes():
            return
        keys = list(keys)
        listed = {"format": FORMAT, "draws": [list(p) for p in keys]}
        text = json.dumps({**listed, "shapes": {name: list(shape) for name, shape in shapes.items()}})
        _tried(self.path / INDEX, lambda path: write_text(path, text))
        names = {self.file(key).name for key in keys}
        for file in self.path.glob("draw-*.safetensors"):
            if file.name not in names and re.fullmatch(r"draw-\d+-\d+\.safetensors", file.name):
                file.unlink(missing_ok=True)

    def read_index(self) -> dict[str, Any]:
        """{"draws": [[chain, step], …], "shapes": {name: shape}}; an error says what is wrong with it."""
        path = self.path / INDEX
        if not path.is_file():
            run = (self.path / "draws" / INDEX).is_file()
            remedy = ", but its folder 'draws' has one: give that" if run else ""
            raise FileNotFoundError(f"{self.path} holds no draws: it has no {INDEX}{remedy}")
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            newer = index.get("format", 0) > FORMAT
            if not newer and not {"draws", "shapes"} <= set(index):
                raise ValueError("it does not list draws and shapes")
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged ({error})") from None
        if newer:
            raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify to read it")
        return index


def read_draw(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor] | None:
    """The draw in a file; None, with a warning that names it, where it is damaged, gone or not of these shapes."""
    try:
        draw = read_tensors(path, read_header(path))
        wrong = [name for name, shape in shapes.items() if name not in draw or draw[name].shape != shape]
        if wrong:
            raise ValueError(f"{path} is of another network: it differs in {', '.join(wrong[:5])}")
        return draw
    except (OSError, ValueError) as error:
        warnings.warn(f"{error}: this draw is left out", stacklevel=3)
        return None


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
