"""bf.fit: the whole training in one call, and a run that goes on after it was stopped, bit for bit."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import load

data = load("digits").with_validation(0.1, seed=0)
train = TensorDataset(data.train.inputs, data.train.targets)
val = DataLoader(TensorDataset(data.val.inputs, data.val.targets), batch_size=256)


class Interrupted(DataLoader):
    """Somebody presses Ctrl-C in the middle of the third epoch."""

    batches = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.batches += 1
            if self.batches == 50:
                signal.raise_signal(signal.SIGINT)
            yield batch


def make_model() -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    return bf.bayesify(net, bf.MonteCarloVI(kl_weight=0.1))  # fit fills num_data in


def run(loader: DataLoader, folder: Path) -> tuple[bf.BayesianModule, bf.History]:
    model = make_model()
    options = {"epochs": 6, "lr": 3e-3, "schedule": "cosine", "kl_warmup": 2, "seed": 0}
    history = bf.fit(model, loader, val, folder=folder, progress=False, **options)
    return model, history


with tempfile.TemporaryDirectory() as place:
    folder = Path(place) / "run"
    try:
        run(Interrupted(train, batch_size=64, shuffle=True), folder)
    except KeyboardInterrupt:
        print("stopped; saved:", ", ".join(sorted(p.name for p in (folder / "checkpoints").iterdir())))
    resumed, history = run(DataLoader(train, batch_size=64, shuffle=True), folder)
    print(
        history.notes[-1], "and finished; validation nll:", [round(v, 3) for v in history.column("val_nll")]
    )
    whole, _ = run(DataLoader(train, batch_size=64, shuffle=True), Path(place) / "never stopped")
    pairs = zip(resumed.state_dict().values(), whole.state_dict().values(), strict=True)
    print("equal to a run that was never stopped:", all(torch.equal(a, b) for a, b in pairs))
    loaded = bf.load(folder / "model.safetensors", make_model().mean_net())
    print({name: round(value, 3) for name, value in bf.evaluate(loaded, val).items()})
