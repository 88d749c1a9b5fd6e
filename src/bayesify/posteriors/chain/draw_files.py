"""Draws in a folder: a safetensors file each, and an index of them."""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor
from torch import distributed as dist

from bayesify.atomic import read_header, read_json, read_tensors, sealed_json, write_tensors, write_text
from bayesify.checks import NotNegativeCount, Range, check_content, fits
from bayesify.posteriors.chain.draw_store import DrawKey

FORMAT = 1
INDEX = "index.json"
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

    def write_index(self, keys: Iterable[DrawKey], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """List these draws; files that are not on the list (of a run that was cut off) are removed."""
        if not _writes():
            return
        keys = list(keys)
        listed = {"format": FORMAT, "draws": [list(p) for p in keys]}
        table = sealed_json({**listed, "shapes": {name: list(shape) for name, shape in shapes.items()}})
        _tried(self.path / INDEX, lambda path: write_text(path, json.dumps(table)))
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
        index = read_json(path)
        if isinstance(index, dict) and fits(index.get("format"), Annotated[int, Range(above=FORMAT)]):
            raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify to read it")
        check_content(index, LISTED, path)
        if not all(len(key) == 2 for key in index["draws"]):
            raise ValueError(f"{path} is damaged: draws must be pairs of a chain and a step")
        return index


def read_draw(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor] | None:
    """The draw in a file; None, with a warning that names it, where it is damaged, gone or not of these shapes."""
    try:
        header = read_header(path)
        if "step" in header and path.name != _name(header.get("chain"), header["step"]):
            raise ValueError(f"{path} is not the draw of that name")
        draw = read_tensors(path, header)
        wrong = [name for name, shape in shapes.items() if name not in draw or draw[name].shape != shape]
        if wrong:
            raise ValueError(f"{path} is of another network: it differs in {', '.join(wrong[:5])}")
        return draw
    except (OSError, ValueError) as error:
        warnings.warn(f"{error}: this draw is left out", stacklevel=3)
        return None


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
