"""Examples from a person's own files: images, tables, and numpy arrays of one example or a batch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.data.checks import check_finite
from bayesify.data.columns import Encoding, encode
from bayesify.data.files import import_optional, load_array, read_arrays
from bayesify.data.image_files import decode, read_image
from bayesify.data.image_folder import LARGE
from bayesify.data.image_folder import SUFFIXES as IMAGES
from bayesify.data.table import SUFFIXES as TABLES
from bayesify.data.table import read_table

ARRAYS = (".npy", ".npz")
READ = (*ARRAYS, *TABLES, *IMAGES)  # what is taken from a folder
_USUAL = ("x", "X", "inputs", "images", "data")  # names of the inputs among several arrays of an npz


def files_in(path: Path) -> list[Path]:
    """The files of a folder that can be read, by name; `path` itself where there are none, or it is no folder."""
    inside = path.iterdir() if path.is_dir() else ()
    return sorted(each for each in inside if each.suffix.lower() in READ) or [path]


def read_examples(path: Path, task: Mapping[str, Any], data: Mapping[str, Any]) -> Tensor:
    """The examples in a file as (N, *input_shape), in the units of the training data.

    task, data: of a run's config.json. A ValueError says what is wrong with the file.
    """
    shape = tuple(task["input_shape"])
    if path.is_dir():
        raise ValueError(f"holds no file that can be read ({', '.join(READ)})")
    if not path.is_file():
        raise ValueError("there is no such file")
    if path.suffix.lower() in TABLES:
        encoding = task.get("encoding")
        if encoding is None:
            raise ValueError("is a table, and the run was not trained on one: give .npy, .npz or image files")
        return encode(read_table(path), Encoding.of(encoding, None).columns, str(path))
    if path.suffix.lower() not in ARRAYS:
        return _read_image(path, shape, data)[None]
    examples = _as_batch(_read_array(path), shape)
    if not len(examples):
        raise ValueError(f"has shape {tuple(examples.shape)}: it holds no example")
    check_finite(examples, "the array")
    if task["inputs"] == "bytes" and examples.is_floating_point() and examples.numel():
        low, high = float(examples.min()), float(examples.max())
        if low < 0 or high > 1:
            raise ValueError(
                f"values from {low:g} to {high:g}: give bytes (uint8, 0 to 255) or numbers from 0 to 1"
            )
    if task["inputs"] != "bytes" and len(shape) == 1:
        return examples.float()  # whole numbers below 256, and no image of bytes
    return examples


def _read_image(path: Path, shape: tuple[int, ...], data: Mapping[str, Any]) -> Tensor:
    """An image as bytes (C, H, W): grey or RGB as the network takes it, scaled to its size."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"an image does not fit the network's input {shape}: give a .npy or .npz file")
    channels, height, width = shape
    if data["name"] == "image_folder":  # scaled and cropped as in training
        resize = data.get("resize")
        seen = data.get("size") is None and height < LARGE
        usual = height if seen else round(height * 256 / 224)
        return decode(path, height, usual if resize is None else resize)
    image_module = import_optional("PIL.Image", "pillow", "reading image files")
    try:
        image = read_image(path, "L" if channels == 1 else "RGB")
    except Exception as error:  # the decoders raise OSError, SyntaxError, struct.error, …
        raise ValueError(f"not a readable image ({type(error).__name__})") from None
    if image.size != (width, height):
        image = image.resize((width, height), image_module.Resampling.BILINEAR)
    pixels = np.array(image).reshape(height, width, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1)  # (C, H, W)


def _read_array(path: Path) -> Tensor:
    try:
        arrays = _read_npy(path) if path.suffix.lower() == ".npy" else read_arrays(path)
    except Exception as error:  # zipfile, zlib, numpy and struct each have their own
        raise ValueError(f"not a readable {path.suffix} file ({error})") from None
    array = next((arrays[key] for key in ("", *_USUAL) if key in arrays), None)
    if array is None and len(arrays) == 1:
        array = next(iter(arrays.values()))
    if array is None:
        raise ValueError(f"holds {', '.join(arrays) or 'no arrays'}: name the one to use x")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"holds {array.dtype}, which are not numbers")
    if array.dtype == np.uint8:
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(np.float32))


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        return {"": load_array(file, path.stat().st_size)}


def _as_batch(array: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(N, *shape) from one example or a batch; a single channel may be left out, or stand last."""
    grey = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    last = (*shape[1:], shape[0])
    for wanted in (shape, grey, last):
        for batch in (array[None], array):
            if tuple(batch.shape[1:]) == wanted:
                return batch.movedim(-1, 1) if wanted is last else batch.reshape(len(batch), *shape)
    raise ValueError(f"has shape {tuple(array.shape)}: the network takes {shape}, or a batch (N, …) of it")
