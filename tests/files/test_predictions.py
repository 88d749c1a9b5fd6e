"""Predictions on disk equal predictions in memory, whatever the batches."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.files.predictions import write_predictions


def classifier() -> bf.BayesianModule:
    return bf.bayesify(nn.Linear(4, 3), bf.DeepEnsemble(num_members=3))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_arrays(tmp_path: Path) -> None:
    model, x, y = classifier(), torch.randn(23, 4), torch.randint(3, (23,))
    count = write_predictions(model, DataLoader(TensorDataset(x, y), 5), tmp_path / "p.npz")
    whole = model.predict(x)
    assert count == 23
    with np.load(tmp_path / "p.npz") as found:
        assert set(found) == {"probs", "label", "confidence", "entropy", "epistemic", "agreement", "target"}
        for name in ("probs", "confidence", "entropy", "epistemic", "agreement"):
            assert np.allclose(found[name], getattr(whole, name), atol=1e-6), name
        assert (found["label"] == whole.label.numpy()).all()
        assert (found["target"] == y.numpy()).all()
        assert found["probs"].dtype == np.float32


def test_rows(tmp_path: Path) -> None:
    model, x = classifier(), torch.randn(11, 4)
    write_predictions(model, [x[:6], x[6:]], tmp_path / "p.csv")
    rows = rows_of(tmp_path / "p.csv")
    whole = model.predict(x)
    assert [int(row["index"]) for row in rows] == list(range(11))
    assert [int(row["label"]) for row in rows] == whole.label.tolist()
    assert "target" not in rows[0]
    assert [float(row["p2"]) for row in rows] == pytest.approx(whole.probs[:, 2].tolist(), rel=1e-5)


def test_regression(tmp_path: Path) -> None:
    model = bf.bayesify(nn.Linear(4, 2), bf.DeepEnsemble(num_members=3), bf.likelihood("normal", std=1.0))
    x, y = torch.randn(7, 4), torch.randn(7, 2)
    write_predictions(model, [(x, y)], tmp_path / "p.npz")
    write_predictions(model, [(x, y)], tmp_path / "p.csv")
    whole = model.predict(x)
    with np.load(tmp_path / "p.npz") as found:
        assert np.allclose(found["mean"], whole.mean)
        assert np.allclose(
            found["std"] ** 2, found["noise_std"] ** 2 + found["epistemic_std"] ** 2, rtol=1e-4
        )
    assert {"mean0", "mean1", "std1", "target0"} <= set(rows_of(tmp_path / "p.csv")[0])


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Twenty batches of 8 MB of probabilities: never more than a few of them are alive."""
    import tracemalloc

    wide = bf.bayesify(nn.Linear(1, 1000), bf.Point())
    tracemalloc.start()
    write_predictions(wide, (torch.zeros(2000, 1) for _ in range(20)), tmp_path / "p.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "p.npz").stat().st_size > 160e6
    assert peak < 60e6
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.npz or \.csv"):
        write_predictions(classifier(), [], tmp_path / "p.txt")
    with pytest.raises(ValueError, match="the loader is empty"):
        write_predictions(classifier(), [], tmp_path / "p.npz")
    assert list(tmp_path.iterdir()) == []
