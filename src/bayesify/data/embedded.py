"""Small real sets that ship with scikit-learn: nothing to download. One fixed split each."""

import os

import numpy as np
import torch

from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import import_optional

_TEST_FRACTION = 0.2


def load(name: str, root: str | os.PathLike[str] | None) -> DataSet:
    """digits (1, 8, 8) in 0..1, breast_cancer (30,), wine (13,), or diabetes (10,) for regression.

    A fifth of the examples, chosen by a fixed permutation, is the test part. `root` is not used.
    """
    sets = import_optional("sklearn.datasets", "scikit-learn", f"data set {name!r}")
    options = {"scaled": False} if name == "diabetes" else {}  # original units; standardised like any other
    raw = getattr(sets, f"load_{name}")(**options)
    if name == "diabetes":
        return DataSet.regression(name, *_parts(raw.data, raw.target[:, None].astype(np.float64)))
    inputs = raw.images[:, None] / 16 if name == "digits" else raw.data  # (N, 1, 8, 8)
    train, test = _parts(inputs, raw.target.astype(np.int64))
    return DataSet.classification(name, train, test, [str(c) for c in raw.target_names])


def _parts(inputs: np.ndarray, targets: np.ndarray) -> tuple[Split, Split]:
    """A fixed 80/20 split; RandomState's stream is frozen, so it never changes."""
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(inputs)))
    num_test = round(_TEST_FRACTION * len(inputs))
    whole = Split(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(targets))
    return whole.take(order[num_test:]), whole.take(order[:num_test])
