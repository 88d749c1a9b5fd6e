"""Finding data files under a root folder, and reading npz archives safely."""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "BAYESIFY_DATA"
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


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays `keys` of an npz archive; pickled objects are refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            arrays = {key: archive[key] for key in keys if key in names}
    except Exception as error:  # zipfile, zlib, numpy and struct each have their own
        raise ValueError(f"{path}: not a readable npz file ({error})") from None
    lacking = [key for key in keys if key not in arrays]
    if lacking:
        raise ValueError(
            f"{path}: array {', '.join(lacking)} is missing; the file holds {', '.join(names) or 'nothing'}"
        )
    return arrays


def import_optional(module: str, package: str, purpose: str) -> Any:
    """`import module`, or an ImportError that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {package} ({error}); install it: pip install {package}") from None
