"""Finding data files under a root folder, and reading npz archives safely."""

import importlib
import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.atomic import check_is_file

VARIABLE = "BAYESIFY_DATA"
RATIO = 2000  # of the sizes of an archive unpacked and packed: zlib reaches 1,000
_REMEDY = f"Name the folder that holds the data with --data-root (root=) or the variable {VARIABLE}"

#: fetches what a data set needs into its root folder
Fetch = Callable[[Path], None]


def data_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    """`root`, or the folder in the variable BAYESIFY_DATA."""
    chosen = os.environ.get(VARIABLE) if root is None else root
    if not chosen:
        raise FileNotFoundError(f"data set {name!r} is read from files and no folder was given. {_REMEDY}.")
    return Path(chosen).expanduser()


def locate(
    name: str,
    root: Path,
    folders: Sequence[str],
    files: Sequence[Sequence[str]],
    *,
    fetch: Fetch | None = None,
    download: bool = False,
) -> list[Path]:
    """The first folder of `folders` (below `root`) that holds every one of `files`, as paths.

    Each of `files` is a list of names of which one is enough (plain or .gz, say). With `download` a set
    that is not complete in any folder is fetched first.
    """
    try:
        return _search(name, root, folders, files, downloadable=fetch is not None)
    except FileNotFoundError:
        if fetch is None or not download:
            raise
    fetch(root)
    return _search(name, root, folders, files, downloadable=True)


def _search(
    name: str, root: Path, folders: Sequence[str], files: Sequence[Sequence[str]], downloadable: bool
) -> list[Path]:
    places = [root / folder for folder in folders]
    missing = list(files)
    for place in places:
        found = [next((place / n for n in names if (place / n).is_file()), None) for names in files]
        paths = [path for path in found if path is not None]
        if len(paths) == len(files):
            return paths
        absent = [names for names, path in zip(files, found, strict=True) if path is None]
        missing = min(missing, absent, key=len)  # report what the most complete folder lacks
    wanted = ", ".join(" or ".join(names) for names in missing)
    searched = ", ".join(str(place) for place in places)
    state = "" if root.is_dir() else f" ({root} is not a folder)"
    download = ", or pass download=True to fetch it" if downloadable else ""
    raise FileNotFoundError(
        f"data set {name!r}: {wanted} not found; searched {searched}{state}. {_REMEDY}{download}."
    )


def split_rows(count: int, share: float, what: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The rows that stay, and a `share` that is taken away, in order; which ones depends on (count, seed) only."""
    taken = round(share * count)
    if not 0 < taken < count:
        raise ValueError(f"{what} is {taken}; both parts need at least one example")
    # RandomState's stream is frozen by numpy's policy: the same examples on every machine and version
    order = torch.from_numpy(np.random.RandomState(seed).permutation(count))
    return order[taken:].sort().values, order[:taken].sort().values


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays `keys` of an npz archive; pickled objects are refused."""
    names: list[str] = []
    arrays = read_arrays(path, keys, names)
    lacking = [key for key in keys if key not in arrays]
    if lacking:
        raise ValueError(
            f"{path}: array {', '.join(lacking)} is missing; the file holds {', '.join(names) or 'nothing'}"
        )
    return arrays


def read_arrays(
    path: Path, keys: Sequence[str] | None = None, names: list[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an npz archive, those of `keys` or all; `names` gets the names of all that it has.

    What the header of an array promises is compared with the size of what is stored before memory is taken, and what
    is stored packed may not be more than `RATIO` times the file.
    """
    check_is_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            (names if names is not None else []).extend(found)
            chosen = {key: found[key] for key in (found if keys is None else keys) if key in found}
            if sum(info.file_size for info in chosen.values()) > RATIO * max(path.stat().st_size, 1):
                raise ValueError("it would grow beyond measure")
            return {key: _read_array(archive, info) for key, info in chosen.items()}
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and struct each have their own
        raise ValueError(f"{path}: not a readable npz file ({error})") from None


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        return load_array(file, info.file_size)


def load_array(file: Any, size: int) -> np.ndarray:
    """The array in an open npy file of `size` bytes; one whose header promises another size is a ValueError."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    count = math.prod(shape)
    if dtype.hasobject:
        raise ValueError("Object arrays are pickles, which may run code: they are not read")
    if any(n < 0 for n in shape) or count * dtype.itemsize > size:
        raise ValueError(f"its header {shape} of {dtype} does not fit {size} bytes")
    array = np.empty(count, dtype)
    rest = array.view(np.uint8).data if array.nbytes else memoryview(b"")
    while len(rest) and (got := file.readinto(rest)):
        rest = rest[got:]
    if len(rest) or file.read(1):
        raise ValueError(f"it is not as long as its header {shape} says")
    return array.reshape(shape, order="F" if fortran else "C")


def import_optional(module: str, package: str, purpose: str) -> Any:
    """`import module`, or an ImportError that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {package} ({error}); install it: pip install {package}") from None
