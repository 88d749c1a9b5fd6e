"""Files of pruned networks and sparse ensembles, which are those of `bf.save`, with their size."""

import copy
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from bayesify.files.storage import load, save
from bayesify.methods import Point
from bayesify.model import BayesianModule, bayesify


def save_sparse(model: BayesianModule, path: str | Path) -> int:
    """`bf.save` of a model that `prune` or `sparsify` has cut; returns the size of the file in bytes.

    A kept weight costs its values and four bytes for its place. Weights that `sparsify` fixes at their mean keep
    their mean, so only the entries of zeroed weights are left out altogether.
    """
    save(model, path)
    return Path(path).stat().st_size


def load_sparse(path: str | Path, net: nn.Module, map_location: Any = None) -> BayesianModule:
    """The model that `save_sparse` wrote, around a network of the same architecture: `bf.load`."""
    return load(path, net, map_location)


def size_of(model: nn.Module) -> int:
    """Bytes of the file that `bf.save` writes of a model, or of a plain network as a point estimate."""
    if not isinstance(model, BayesianModule):
        model = bayesify(copy.deepcopy(model), Point())
    with tempfile.TemporaryDirectory() as folder:
        return save_sparse(model, Path(folder) / "model.safetensors")
