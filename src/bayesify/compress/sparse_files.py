"""Files of sparse ensembles, which are those of `bf.save`, with their size."""

from pathlib import Path
from typing import Any

from torch import nn

from bayesify.diagnostics.variance import variance_posterior
from bayesify.module import BayesianModule
from bayesify.storage import load, save


def save_sparse(model: BayesianModule, path: str | Path) -> int:
    """`bf.save` of a model that `sparsify` has cut; returns the size of the file in bytes.

    A kept weight costs its values and four bytes for its place. Weights that are fixed at their mean keep their mean,
    so only the entries of zeroed weights are left out altogether.
    """
    variance_posterior(model)
    save(model, path)
    return Path(path).stat().st_size


def load_sparse(path: str | Path, net: nn.Module, map_location: Any = None) -> BayesianModule:
    """The model that `save_sparse` wrote, around a network of the same architecture: `bf.load`."""
    return load(path, net, map_location)
