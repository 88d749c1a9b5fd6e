"""What tells one data set from another."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bayesify.data import ImageFiles, Loader, Split, load
from bayesify.data.fingerprint import EXAMPLES, digest, fingerprint, spread

X, Y = torch.arange(600.0).reshape(200, 3), torch.arange(200) % 2


def test_the_same_examples_have_the_same_one() -> None:
    assert fingerprint(Split(X, Y)) == fingerprint(Split(X.clone(), Y.clone()))
    ds = load("digits")
    assert fingerprint(ds.train) == fingerprint(load("digits").train) != fingerprint(ds.test)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 1000])
def test_the_sample_is_spread_from_the_first_to_the_last(count: int) -> None:
    places = spread(count)
    assert len(places) == len(set(places)) == min(count, EXAMPLES)
    assert places[0] == 0 and places[-1] == count - 1


@pytest.mark.parametrize("change", ["label", "first", "last", "order", "dtype", "number", "shape"])
def test_what_is_noticed(change: str) -> None:
    x, y = X.clone(), Y.clone()
    if change == "label":
        y[77] = 1 - y[77]  # every one of them counts
    if change in ("first", "last"):
        x[0 if change == "first" else -1, 1] += 1e-4
    if change == "order":
        x = x.flip(0)
    if change == "dtype":
        x = x.double()
    if change == "number":
        x, y = x[:-1], y[:-1]
    if change == "shape":
        x = x.reshape(200, 3, 1)
    assert fingerprint(Split(x, y)) != fingerprint(Split(X, Y))


def test_image_files_count_by_their_bytes(tmp_path: Path) -> None:
    paths = tuple(tmp_path / f"{i}.png" for i in range(3))
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 10)  # never decoded
    split = Split(ImageFiles(paths, 8, 8), torch.arange(3))
    before = fingerprint(split)
    paths[1].write_bytes(b"other")
    assert fingerprint(split) != before


def test_a_loader_has_its_normalisation_in_it() -> None:
    ds = load("digits")
    facts = Loader(ds.train, 16, normalise=ds.normalisation).fingerprint()
    assert facts["num_data"] == len(ds.train) and facts["input_shape"] == [1, 8, 8]
    assert facts["normalisation"]["mean"] == ds.normalisation.mean.tolist()
    assert facts["examples"] == fingerprint(ds.train)


def test_a_hash_of_anything() -> None:
    """Kinds, shapes and values count; what cannot be told counts by its type, and never by its address."""
    values = [
        *(torch.ones(2), torch.ones(1, 2), torch.ones(2).bfloat16(), torch.ones(2, dtype=torch.bool)),
        *(np.ones(2), np.float32(1), 1, 1.0, "1", b"1", None, {"a": 1, "b": [2]}, object),
    ]
    hashes = [digest(value) for value in values]
    assert len(set(hashes)) == len(values)
    assert digest(object()) == digest(object())
