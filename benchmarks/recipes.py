"""Methods by their recipes on scikit-learn's digits: accuracy, NLL and ECE on validation images, means over seeds.

python benchmarks/recipes.py --nets mlp gru cnn vit_tiny --methods point mc_vi emp vdp variance --seeds 3
"""

import argparse
import statistics
import time

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import DataSet, Loader, load


class Rows(nn.Module):
    """A GRU over the rows of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(8, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x.flatten(1, 2))[0][:, -1])  # (batch, rows, columns) -> (batch, classes)


def make(name: str) -> nn.Module:
    """A network by name: two of this file, others of `bf.nets`."""
    if name == "gru":
        return Rows()
    if name == "cnn":
        first, second = (
            (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in ((1, 16), (16, 32))
        )
        end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        return nn.Sequential(*first, nn.MaxPool2d(2), *second, *end)
    options = {"mlp": {"hidden": (128,)}, "vit_tiny": {"patch": 2}}.get(name, {})
    return bf.nets.make(name, num_outputs=10, input_shape=(1, 8, 8), **options)


def run(ds: DataSet, net: str, method: str, epochs: int | None, seed: int) -> tuple[dict[str, float], str]:
    """Metrics on validation data and seconds of training of one run, and what its recipe chose."""
    torch.manual_seed(seed)
    model = bf.bayesify(make(net), method, num_data=len(ds.train))
    train = Loader(ds.train, 64, shuffle=True, seed=seed, normalise=ds.normalisation)
    start = time.perf_counter()
    history = bf.fit(model, train, epochs=epochs, seed=seed, progress=False, on_bad_sampling="ignore")
    seconds = time.perf_counter() - start
    val = Loader(ds.val, 512, normalise=ds.normalisation)
    found = bf.evaluate(model, val, 30, generator=torch.Generator().manual_seed(0))
    said = next((note for note in history.notes if note.startswith("recipe")), "")
    return {**found, "seconds": seconds}, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=["mlp"])
    parser.add_argument("--methods", nargs="+", default=["point", "mc_vi", "emp", "vdp", "variance"])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    ds = load("digits").with_validation(0.2, seed=0)
    for net in given.nets:
        for method in given.methods:
            runs = [run(ds, net, method, given.epochs, seed) for seed in range(given.seeds)]
            means = {
                key: statistics.fmean(r[key] for r, _ in runs)
                for key in ("accuracy", "nll", "ece", "seconds")
            }
            numbers = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
            print(f"{net:8} {method:10} {numbers}  {runs[0][1]}", flush=True)


if __name__ == "__main__":
    main()
