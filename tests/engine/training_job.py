"""A small run in a process of its own, to be killed.

python training_job.py FOLDER METHOD LOADER [PAUSE [ACCELERATOR [compiled]]]
"""

import json
import os
import sys
import time
from typing import Any

import torch
from torch import nn

import bayesify as bf
from bayesify.data import DataSet, Loader, Split


def data() -> DataSet:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(240, 6, generator=generator)
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).long()
    return DataSet.classification("toy", Split(x[:200], y[:200]), Split(x[200:], y[200:]), ("no", "yes"))


def model(method: str) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 2))
    return bf.bayesify(
        net, bf.MonteCarloVI() if method == "mc_vi" else bf.Point(prior="normal"), num_data=200
    )


def loader(kind: str) -> Any:
    split = data().train
    if kind == "own":
        return Loader(split, 16, shuffle=True, seed=3)
    dataset = torch.utils.data.TensorDataset(split.inputs, split.targets)
    return torch.utils.data.DataLoader(dataset, 16, shuffle=True)


class Slow:
    """Gives the one who kills it time to choose an instant."""

    def __init__(self, inner: Any, pause: float) -> None:
        self.inner, self.pause = inner, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Any:
        for batch in self.inner:
            time.sleep(self.pause)
            yield batch


def train(
    folder: str,
    method: str,
    kind: str,
    pause: float = 0.0,
    epochs: int = 6,
    seed: int = 11,
    made: bf.BayesianModule | None = None,
    **options: Any,
) -> Any:
    sampler = None
    if method == "sgld":
        sampler = lambda params: bf.samplers.SGLD(params, lr=1e-5, num_data=200, seed=5)  # noqa: E731
    inner = loader(kind)
    return bf.fit(
        model(method) if made is None else made,
        Slow(inner, pause) if pause else inner,
        Loader(data().test, 40),
        epochs=epochs,
        optimizer=sampler,
        schedule="cosine",
        folder=folder,
        checkpoint_every=3,
        kl_warmup=1.0,
        seed=seed,
        ema=0.9 if method == "mc_vi" else None,
        progress=False,
        **options,
    )


def main(
    folder: str, method: str, kind: str, pause: str = "0", accelerator: str = "auto", compiled: str = ""
) -> None:
    """Train, and say on which devices the model was."""
    torch.set_num_threads(1)
    if "CUBLAS_WORKSPACE_CONFIG" in os.environ:  # without it cuBLAS has no deterministic algorithms
        torch.use_deterministic_algorithms(True)
    made = model(method)
    options: dict[str, Any] = {"accelerator": accelerator, "compile": True if compiled else "auto"}
    history = train(folder, method, kind, float(pause), made=made, **options)
    devices = {str(value.device) for value in made.state_dict().values()}
    print(json.dumps({"devices": sorted(devices), "notes": history.notes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
