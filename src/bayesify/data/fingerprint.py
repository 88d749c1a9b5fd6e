"""What tells the data of a run from others: a hash over all targets and over inputs spread evenly over a split.

A sample is looked at, so that it costs little. It finds another file, another order, another version of a data set; a
few examples that were changed on purpose it may miss.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.data.dataset import Split
from bayesify.data.image_files import ImageFiles
from bayesify.torch_internals import pytree

EXAMPLES = 32  # that are read
HASH = "blake2b:"


def fingerprint(split: Split) -> str:
    """The hash of a split that is not empty. Of image files the bytes count, which are the same everywhere."""
    index = torch.tensor(spread(len(split)))
    inputs = split.inputs
    if isinstance(inputs, ImageFiles):
        read: Any = [inputs.paths[i].read_bytes() for i in index.tolist()]
    else:
        read = inputs.index_select(0, index.to(inputs.device))
    return digest([split.targets, read])


def spread(count: int) -> list[int]:
    """At most `EXAMPLES` places from 0 to count − 1, evenly spread, the first and the last among them."""
    few = min(count, EXAMPLES)
    return [i * (count - 1) // max(few - 1, 1) for i in range(few)]


def digest(values: Any) -> str:
    """A hash of nested lists and tables of tensors, arrays, images, numbers and texts."""
    found = hashlib.blake2b(digest_size=16)
    for leaf in pytree.tree_leaves(values):
        for part in _bytes(leaf):
            found.update(part)
    return f"{HASH}{found.hexdigest()}"


def _bytes(leaf: Any) -> Iterable[Any]:
    if isinstance(leaf, Tensor):
        flat = leaf.detach().cpu().contiguous().reshape(-1)
        return f"{leaf.dtype} {tuple(leaf.shape)}".encode(), flat.view(torch.uint8).numpy()
    if isinstance(leaf, np.ndarray | np.generic):
        return f"{leaf.dtype} {leaf.shape}".encode(), leaf.tobytes()
    if isinstance(leaf, bytes):
        return f"{len(leaf)}".encode(), leaf
    if leaf is None or isinstance(leaf, bool | int | float | str | Path):
        return (repr(leaf).encode(),)
    if hasattr(leaf, "tobytes"):  # an image
        return type(leaf).__name__.encode(), leaf.tobytes()
    return (type(leaf).__name__.encode(),)  # what else it holds may differ from run to run
