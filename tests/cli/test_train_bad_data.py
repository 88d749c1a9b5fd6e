"""Data that cannot be trained on: one line, exit code 2, and no folder is left behind."""

from pathlib import Path

import numpy as np
import pytest
from cli_runs import DIABETES, fail, succeed

TRAIN = ("train", "--method", "point", "--net", "mlp", "--epochs", "1")


def table(root: Path, x: np.ndarray, y: np.ndarray) -> tuple[str, ...]:
    """A UCI table of these examples, the last ten for testing."""
    (root / "uci").mkdir(parents=True)
    rows = np.arange(len(x))
    np.savez(root / "uci/yacht.npz", X=x, y=y, train=rows[None, :-10], test=rows[None, -10:])
    return ("--data", "uci_yacht", "--data-root", str(root))


def mnist(root: Path, images: np.ndarray, labels: np.ndarray) -> tuple[str, ...]:
    """The four files of MNIST with these examples in both parts."""
    root.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        pixels = np.array([0x803, *images.shape], ">i4").tobytes() + images.astype(np.uint8).tobytes()
        (root / f"{part}-images-idx3-ubyte").write_bytes(pixels)
        digits = np.array([0x801, len(labels)], ">i4").tobytes() + labels.astype(np.uint8).tobytes()
        (root / f"{part}-labels-idx1-ubyte").write_bytes(digits)
    return ("--data", "mnist", "--data-root", str(root))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(bad: float, tmp_path: Path) -> None:
    x = np.random.RandomState(0).standard_normal((40, 6))
    y = x[:, :1] * 10
    x[3, 2] = bad
    flags = table(tmp_path / "data", x, y)
    message = fail(*TRAIN, *flags, "--folder", tmp_path / "run")
    assert f"train inputs: value {bad} at index (3, 2) (1 values are NaN or infinite)" in message
    x[3, 2], y[35] = 0.0, bad
    message = fail(*TRAIN, *table(tmp_path / "targets", x, y), "--folder", tmp_path / "run")
    assert f"test targets: value {bad}" in message
    assert not (tmp_path / "run").exists()


def test_one_class(tmp_path: Path) -> None:
    images = np.random.RandomState(0).randint(0, 256, (20, 28, 28))
    flags = mnist(tmp_path / "data", images, np.full(20, 7))
    message = fail(*TRAIN, *flags, "--folder", tmp_path / "run")
    assert (
        "data set 'mnist', train targets: every label is 7; a classification set needs two classes" in message
    )
    assert not (tmp_path / "run").exists()


def test_data_that_spoil_after_a_run_began(tmp_path: Path) -> None:
    """The run stays as it was, and goes on when the data are whole again."""
    x = np.random.RandomState(0).standard_normal((40, 6))
    flags = table(tmp_path / "data", x, x[:, :1] * 10)
    run = tmp_path / "run"
    succeed("train", *DIABETES, *flags, "--epochs", "1", "--folder", run)
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    file = tmp_path / "data/uci/yacht.npz"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "yacht.npz" in fail("train", "--resume", "--epochs", "2", "--folder", run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == kept
    file.write_bytes(whole)
    succeed("train", "--resume", "--epochs", "2", "--folder", run)
