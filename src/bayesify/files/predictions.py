"""Predictions of a whole data set on disk, batch by batch: .npz arrays or .csv rows."""

import csv
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Generator

from bayesify.atomic import write_atomically
from bayesify.batches import inputs_for, target_of
from bayesify.predict.nonfinite import counted_from
from bayesify.predict.predictive import Predictive

Columns = dict[str, np.ndarray]


def write_predictions(
    model: Any,
    loader: Iterable[Any],
    path: str | Path,
    num_draws: int = 20,
    generator: Generator | None = None,
) -> int:
    """Write what `model` predicts for every batch of `loader`; the number of examples is returned.

    .npz: arrays probs, label, confidence, entropy, epistemic, agreement (classification) or mean, std,
    noise_std, epistemic_std (regression), input_noise or input_noise_std where inputs carry variance, and
    target where the loader gives one. .csv: the same as columns, probabilities as p0, p1, … Memory does not
    grow with the data.

    >>> write_predictions(model, test_loader, "predictions.npz")
    """
    path = Path(path)
    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"path={str(path)!r} must end in .npz or .csv")
    rows = _Count(_columns(model, loader, num_draws, generator))
    writer = _write_npz if path.suffix == ".npz" else _write_csv
    write_atomically(path, lambda partial: writer(partial, rows))
    return rows.total


class _Count:
    """Passes batches on and counts their examples."""

    def __init__(self, batches: Iterator[Columns]) -> None:
        self.batches, self.total = batches, 0

    def __iter__(self) -> Iterator[Columns]:
        for batch in self.batches:
            self.total += len(next(iter(batch.values())))
            yield batch
        if self.total == 0:
            raise ValueError("the loader is empty: nothing to predict")


def _columns(
    model: Any, loader: Iterable[Any], num_draws: int, generator: Generator | None
) -> Iterator[Columns]:
    first = 0
    for batch in loader:
        with counted_from(first):
            prediction = model.predict(inputs_for(model, batch), num_draws, generator=generator).to("cpu")
        first += len(prediction)
        found = fields(prediction)
        with suppress(ValueError):  # inputs alone have none
            found["target"] = torch.as_tensor(target_of(batch)).cpu().numpy()
        yield found


def fields(prediction: Predictive) -> Columns:
    """A prediction as arrays, one row per example."""
    exact = prediction.input_shares is None
    if prediction.likelihood.task == "classification":
        names = ("probs", "label", "confidence", "entropy", "epistemic", "agreement")
        found = {name: getattr(prediction, name).numpy() for name in names}
        return found if exact else {**found, "input_noise": prediction.input_noise.numpy()}
    found = {
        "mean": prediction.mean.numpy(),
        "std": prediction.std.numpy(),
        "noise_std": prediction.aleatoric.sqrt().numpy(),
        "epistemic_std": prediction.epistemic.sqrt().numpy(),
    }
    return found if exact else {**found, "input_noise_std": prediction.input_noise.sqrt().numpy()}


def _write_npz(path: Path, batches: Iterable[Columns]) -> None:
    """Raw numbers go to one temporary file per array; lengths are known only at the end."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        files: dict[str, BinaryIO] = {}
        shapes: dict[str, tuple[np.dtype, tuple[int, ...], int]] = {}
        try:
            for batch in batches:
                for name, values in batch.items():
                    if name not in files:
                        files[name] = (Path(folder) / name).open("w+b")
                        shapes[name] = (values.dtype, values.shape[1:], 0)
                    dtype, shape, count = shapes[name]
                    if values.shape[1:] != shape:
                        raise ValueError(f"{name} has shape {values.shape[1:]} after {shape}: give one size")
                    files[name].write(np.ascontiguousarray(values, dtype).tobytes())
                    shapes[name] = (dtype, shape, count + len(values))
            with zipfile.ZipFile(path, "w") as archive:
                for name, file in files.items():
                    dtype, shape, count = shapes[name]
                    file.seek(0)
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                        header = {
                            "descr": np.lib.format.dtype_to_descr(dtype),
                            "fortran_order": False,
                            "shape": (count, *shape),
                        }
                        np.lib.format.write_array_header_2_0(entry, header)
                        shutil.copyfileobj(file, entry, 2**20)
        finally:
            for file in files.values():
                file.close()


def _write_csv(path: Path, batches: Iterable[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer, number = csv.writer(file), 0
        for batch in batches:
            flat = {name: values.reshape(len(values), -1) for name, values in batch.items()}
            if number == 0:
                headers = (h for name, v in flat.items() for h in _headers(name, v.shape[1]))
                writer.writerow(["index", *headers])
            table = np.concatenate([values.astype(np.float64) for values in flat.values()], 1)
            whole = [np.issubdtype(v.dtype, np.integer) for v in flat.values() for _ in range(v.shape[1])]
            for row in table.tolist():
                written = (int(v) if w else f"{v:.9g}" for v, w in zip(row, whole, strict=True))
                writer.writerow([number, *written])
                number += 1


def _headers(name: str, width: int) -> list[str]:
    if name == "probs":
        return [f"p{i}" for i in range(width)]
    return [name] if width == 1 else [f"{name}{i}" for i in range(width)]
