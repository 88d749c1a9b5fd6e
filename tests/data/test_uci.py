"""The UCI npz files: splits, targets, standardisation from the training rows only."""

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import uci_arrays, write_npz

from bayesify.data import load


@pytest.mark.parametrize("folder", ["uci", ""])
@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("target", [0, 1])
def test_takes_the_rows_of_a_split(folder: str, split: int, target: int, tmp_path: Path) -> None:
    arrays = uci_arrays()
    write_npz(tmp_path / folder / "yacht.npz", arrays)
    ds = load("uci_yacht", tmp_path, split=split, target=target)
    assert (ds.task, ds.num_outputs, ds.input_shape) == ("regression", 1, (3,))
    for part, loaded in (("train", ds.train), ("test", ds.test)):
        rows = arrays[part][split]
        assert np.array_equal(loaded.inputs.numpy(), arrays["X"][rows])
        assert np.array_equal(loaded.targets.numpy()[:, 0], arrays["y"][rows, target])


def test_statistics_are_of_the_training_rows_and_constant_columns_are_guarded(tmp_path: Path) -> None:
    arrays = uci_arrays()
    arrays["X"][:, 1] = 0.998
    arrays["X"][arrays["test"][0], 2] += 1000
    write_npz(tmp_path / "naval.npz", arrays)
    ds = load("uci_naval", tmp_path)
    rows = arrays["train"][0]
    assert np.allclose(ds.normalisation.mean, arrays["X"][rows].mean(0))
    assert np.allclose(ds.normalisation.std[[0, 2]], arrays["X"][rows].std(0)[[0, 2]])
    assert ds.normalisation.std[1] == 1
    assert np.allclose(ds.normalisation.target_mean, arrays["y"][rows, 0].mean())
    assert np.allclose(ds.normalisation.target_std, arrays["y"][rows, 0].std())
    z = ds.normalisation.inputs(ds.train.inputs, torch.float64)
    assert z.mean(0).abs().max() < 1e-12


@pytest.mark.parametrize("split", [-1, 2])
def test_split_out_of_range(split: int, tmp_path: Path) -> None:
    write_npz(tmp_path / "boston.npz", uci_arrays())
    with pytest.raises(ValueError, match=rf"split={split}: .*boston.npz has splits 0\.\.1"):
        load("uci_boston", tmp_path, split=split)


@pytest.mark.parametrize("target", [-1, 2])
def test_target_out_of_range(target: int, tmp_path: Path) -> None:
    write_npz(tmp_path / "boston.npz", uci_arrays())
    with pytest.raises(ValueError, match=rf"target={target}: .*boston.npz has target columns 0\.\.1"):
        load("uci_boston", tmp_path, target=target)


def changed(key: str, index: object, value: float) -> dict[str, np.ndarray]:
    arrays = uci_arrays()
    arrays[key] = arrays[key].copy()
    arrays[key][index] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed("X", (7, 1), np.nan), r"'uci_power', (train|test) inputs: value nan at index \(\d+, 1\)"),
        (changed("y", (7, 0), np.inf), r"'uci_power', (train|test) targets: value inf"),
        (changed("test", (0, 0), 20), r"power.npz: array test, split 0: row indices must lie in 0\.\.19"),
        (changed("test", (0, 0), uci_arrays()["train"][0, 5]), "split 0 has 1 rows in both train and test"),
        ({**uci_arrays(), "X": uci_arrays()["X"].astype(str)}, "array X: <U32 values that are not numbers"),
        (
            {**uci_arrays(), "test": uci_arrays()["test"] + 0.5},
            "array test: float64 values that are not whole",
        ),
        (
            {**uci_arrays(), "train": uci_arrays()["train"][0]},
            r"array train: shape \(16,\) where \(16, any\)",
        ),
        ({**uci_arrays(), "y": uci_arrays()["y"][1:]}, r"array y: shape \(19, 2\) where \(20, any\)"),
        ({**uci_arrays(), "y": uci_arrays()["y"][:, 0]}, r"array y: shape \(20,\) where \(20, any\)"),
        ({**uci_arrays(), "X": uci_arrays()["X"][0]}, r"array X: shape \(3,\) where \(any, any\)"),
        ({**uci_arrays(), "test": uci_arrays()["test"][:1]}, r"array test: shape \(1, 4\) where \(2, any\)"),
        ({**uci_arrays(), "train": uci_arrays()["train"][:, :0]}, "array train, split 0: row indices"),
        (
            {k: v for k, v in uci_arrays().items() if k != "y"},
            "power.npz: array y is missing; the file holds X",
        ),
    ],
)
def test_wrong_content(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "power.npz", arrays)
    with pytest.raises(ValueError, match=message):
        load("uci_power", tmp_path)


def test_missing_file_has_no_download(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'uci_energy': energy.npz not found; searched") as caught:
        load("uci_energy", tmp_path)
    assert "download" not in str(caught.value)
