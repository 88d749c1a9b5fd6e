"""Samplers and IVON at their defaults beside plain training, on the 1,437 training images of scikit-learn's digits.

    python benchmarks/digits_samplers.py                 # two networks, three seeds, eight minutes of one core
    python benchmarks/digits_samplers.py --temperature 1
    python benchmarks/digits_samplers.py --epochs 100 --nets mlp --methods atmc sgld

Every row is `bf.fit` with nothing set, by which these chains are cold: --temperature 1 samples the posterior. Chains
predict by the average over their 20 draws. "dead" is the mean square of the weights of the three pixels that are 0 in
all images, the temperature under their prior; "findings" counts the runs of which the check found this.
"""

import argparse
import statistics
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load
from timing import table

METHODS: dict[str, Callable[[], Any]] = {
    "point": bf.Point,
    "ivon": bf.IVON,
    **{
        name: partial(bf.ThermostatMCMC, sampler=name) for name in ("atmc", "sgnht", "sghmc", "sgld", "psgld")
    },
}
METRICS = ("nll", "accuracy", "ece")


def mlp() -> nn.Module:
    """One hidden layer of 100 ReLUs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def cnn() -> nn.Module:
    """Two convolutions with batch norm."""
    blocks = [
        [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
        for i, o in ((1, 16), (16, 32))
    ]
    return nn.Sequential(*blocks[0], *blocks[1], nn.Flatten(), nn.Linear(128, 10))


NETS = {"mlp": mlp, "cnn": cnn}


def run(
    make: Callable[[], nn.Module], name: str, seed: int, epochs: int, temperature: float | None
) -> dict[str, Any]:
    """The metrics of one run on the test images, what its check found, and the weights of dead pixels."""
    data, options = load("digits"), {"seed": seed, "progress": False, "compile": False}
    torch.manual_seed(seed)
    chain = isinstance(METHODS[name], partial)
    method = METHODS[name](temperature=temperature) if chain else METHODS[name]()
    model = bf.bayesify(make(), method, num_data=len(data.train))
    bf.fit(model, Loader(data.train, 64, shuffle=True), epochs=epochs, **options)
    found = dict(bf.evaluate(model, Loader(data.test, 256)))
    found["findings"] = set(getattr(model.posterior, "findings", {}))
    if chain and make is mlp:
        dead = data.train.inputs.flatten(1).eq(0).all(0)
        weights = torch.stack([draw["1.weight"][:, dead] for _, draw in model.posterior.each()])
        found["dead"] = weights.square().mean().item()
    return found


def main() -> None:
    """A table for each network, means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nets", nargs="+", default=[*NETS], choices=NETS)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=METHODS)
    parser.add_argument("--temperature", type=float, help="of the chains; their own choice if not given")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the table has a column for them
    for make in (NETS[name] for name in options.nets):
        rows = []
        for name in options.methods:
            runs = [
                run(make, name, seed, options.epochs, options.temperature) for seed in range(options.seeds)
            ]
            means = [f"{statistics.mean(r[metric] for r in runs):.3f}" for metric in METRICS]
            dead = f"{statistics.mean(r['dead'] for r in runs):.2f}" if "dead" in runs[0] else ""
            kinds = Counter(kind for r in runs for kind in r["findings"])
            counted = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
            rows.append([name, *means, dead, counted])
        table(f"Digits, {make.__name__}, {options.epochs} epochs", rows, ["", *METRICS, "dead", "findings"])


if __name__ == "__main__":
    main()
