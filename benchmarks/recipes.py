"""Methods by their recipes on small images and tables, means over seeds, measured on validation data.

Accuracy, NLL as it is and calibrated (each half by the number found on the other), ECE, and NLL under five corruptions
of severity 3. Of tables RMSE in stds of the targets, NLL of standardised ones, coverage of 90 % intervals, and NLL of
inputs with noise of std 0.5; targets are in their own units, which `bf.fit` finds.

python benchmarks/recipes.py --nets mlp gru cnn vit_tiny --methods point mc_vi emp vdp variance --seeds 3
python benchmarks/recipes.py --nets cnn --methods emp 'emp:{"spread": 0.03}'
python benchmarks/recipes.py --data mnist --root DATA --num-train 1000 --nets cnn lenet --methods point emp
python benchmarks/recipes.py --data diabetes uci_energy --root DATA --nets mlp
"""

import argparse
import dataclasses
import json
import math
import statistics
import time
import warnings

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import DataSet, Loader, Split, load
from bayesify.studies.corruptions import COMMON, corrupt

KEYS = ("accuracy", "rmse", "nll", "calibrated", "ece", "coverage90", "corrupted", "seconds")


class Rows(nn.Module):
    """A GRU over the rows of a picture."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(size, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x.flatten(1, 2))[0][:, -1])  # (batch, rows, columns) -> (batch, classes)


def make(name: str, ds: DataSet) -> nn.Module:
    """A network by name: two of this file, others of `bf.nets`."""
    if name == "gru":
        return Rows(ds.input_shape[-1])
    if name == "cnn":
        first, second = (
            (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in ((1, 16), (16, 32))
        )
        end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        return nn.Sequential(*first, nn.MaxPool2d(2), *second, *end)
    options = {"mlp": {"hidden": (128,)}, "vit_tiny": {"patch": ds.input_shape[-1] // 4}}.get(name, {})
    return bf.nets.make(name, num_outputs=ds.num_outputs, input_shape=ds.input_shape, **options)


def run(ds: DataSet, net: str, method: str, epochs: int | None, seed: int) -> tuple[dict[str, float], str]:
    """Metrics on validation data and seconds of training of one run, and what its recipe chose."""
    torch.manual_seed(seed)
    name, _, options = method.partition(":")
    made = bf.methods.method(name, **json.loads(options or "{}"))
    law = "normal" if ds.task == "regression" else "categorical"
    model = bf.bayesify(make(net, ds), made, law, num_data=len(ds.train))
    train = Loader(ds.train, 64, shuffle=True, seed=seed, normalise=ds.normalisation)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        history = bf.fit(model, train, epochs=epochs, seed=seed, progress=False)
    seconds = time.perf_counter() - start
    assert ds.val is not None
    found = measured(model, ds, ds.val)
    half = torch.arange(len(ds.val)) % 2 == 0
    halves = [ds.val.take(part.nonzero().flatten()) for part in (half, ~half)]
    calibrated = []
    for fitted, rest in (halves, halves[::-1]):
        bf.calibrate(model, Loader(fitted, 512, normalise=ds.normalisation))
        calibrated.append(measured(model, ds, rest)["nll"])
    bf.calibrate(model, None)
    corrupted = statistics.fmean(measured(model, ds, split)["nll"] for split in shifted(ds, ds.val))
    said = next((note for note in history.notes if note.startswith("recipe")), "")
    more = {"calibrated": statistics.fmean(calibrated), "corrupted": corrupted, "seconds": seconds}
    return {**found, **more}, said


def shifted(ds: DataSet, split: Split) -> list[Split]:
    """The same examples under corruptions of severity 3, or with noise in the inputs."""
    inputs = torch.as_tensor(split.inputs[:])
    if ds.task == "classification":
        return [Split(corrupt(inputs, each, 3), split.targets) for each in COMMON[::3]]
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    return [Split(inputs + 0.5 * ds.normalisation.std * noise, split.targets)]


def measured(model: bf.BayesianModule, ds: DataSet, split: Split) -> dict[str, float]:
    """`bf.evaluate`; of numbers as if the targets had a std of 1."""
    batches = Loader(split, 512, normalise=ds.normalisation)
    found = bf.evaluate(model, batches, 30, generator=torch.Generator().manual_seed(0))
    if ds.task == "regression":
        std = float(ds.train.targets.std(correction=0))
        found |= {"rmse": found["rmse"] / std, "nll": found["nll"] - math.log(std)}
    return found


def part_of(name: str, a: argparse.Namespace) -> DataSet:
    """The data set with examples to train on, and others to measure on."""
    ds = load(name, a.root)
    if ds.task == "regression":
        ds = dataclasses.replace(
            ds, normalisation=dataclasses.replace(ds.normalisation, target_mean=None, target_std=None)
        )
    if a.num_train is None:
        return ds.with_validation(0.2, seed=0)
    order = torch.randperm(len(ds.train), generator=torch.Generator().manual_seed(0))
    train, val = order[: a.num_train], order[-2000:]
    return dataclasses.replace(ds, train=ds.train.take(train), val=ds.train.take(val))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument("--root")
    parser.add_argument("--num-train", type=int, help="images to train on; 2,000 others are measured on")
    parser.add_argument("--nets", nargs="+", default=["mlp"])
    parser.add_argument("--methods", nargs="+", default=["point", "mc_vi", "emp", "vdp", "variance"])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for data in given.data:
        ds = part_of(data, given)
        for net in given.nets:
            for method in given.methods:
                runs = [run(ds, net, method, given.epochs, seed) for seed in range(given.seeds)]
                means = {k: statistics.fmean(r[k] for r, _ in runs) for k in KEYS if k in runs[0][0]}
                numbers = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
                print(f"{data:10} {net:8} {method:10} {numbers}  {runs[0][1]}", flush=True)


if __name__ == "__main__":
    main()
