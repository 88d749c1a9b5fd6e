"""CIFAR-10 with ResNet++-20: samplers against optimisers, as Table 1 of paper 4; each row by itself.

    python benchmarks/sampler_results.py --data-root DATA --rows atmc --epochs 100 --out atmc.json
    python benchmarks/sampler_results.py … --folder RUNS         # checkpoints there; again with more epochs: goes on
    python benchmarks/sampler_results.py --table *.json                      # all rows, mean over seeds
    python benchmarks/sampler_results.py --data-root DATA --epochs 2 --cycle 1 --num-train 500 --num-test 500    (CPU)

Rows: "sgd" (ResNet++, the sampler's own posterior as the loss: MAP), "sgd_bn" (ResNet-20 with batch norm, weight
decay 5e-4), "atmc" and "sgnht" at temperature 1, "atmc_cold" and "sgnht_cold" at --cold. Both optimisers: momentum
0.9, cosine schedule over all epochs. The samplers' largest step is like that of the SGD row: momentum 0.9 and
h₀² num_data / m = 0.05, which sets the mass; no weight moves faster than 3.3 times its mean thermal speed, as in the
paper (whose 0.0045 is for 1000 epochs). The step size goes in cycles, a draw is kept at the end of each after the
burn-in. Random crops and flips for all rows.
"single" is the mean over the draws of each one's own score, "predictive" the score of their average.
Paper: ResNet-56, 32 filters, 1000 epochs, cycles of 50, burn-in 150.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.evaluation.metrics import METRICS, reliability
from bayesify.nets import make
from bayesify.samplers.schedules import Cyclic
from timing import table

BINS = 8
STEP = 1e-3  # h₀; only h₀² num_data / m matters
FASTEST = 1e-3 / 3e-4  # largest speed of a weight over the root mean square (paper 4, section 5)
PAPER = {  # accuracy in %, NLL
    "sgd": {"single": (91.5, 0.370)},
    "sgd_bn": {"single": (94.4, 0.243)},
    "atmc": {"single": (92.4, 0.303), "predictive": (93.9, 0.194)},
    "sgnht": {"single": (91.7, 0.343), "predictive": (93.5, 0.211)},
}
Record = dict[str, Any]


class Run:
    """Data and settings of one process."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a, data = a, load("cifar10", a.data_root)
        self.cuda = a.device.startswith(
            "cuda"
        )  # fused optimisers there: others wait for the device at every step
        train, test = (
            part if count is None else part.take(torch.arange(count))
            for part, count in ((data.train, a.num_train), (data.test, a.num_test))
        )
        self.data, self.num_train = data, len(train)
        shared = {"device": a.device, "normalise": data.normalisation}
        self.train = Loader(
            train, a.batch, shuffle=True, seed=a.seed, drop_last=True, augment="crop_flip", **shared
        )
        self.test = Loader(test, 1000, **shared)

    def model(self, net: str, method: Any) -> bf.BayesianModule:
        torch.manual_seed(self.a.seed)
        shape, outputs = self.data.input_shape, self.data.num_outputs
        made = make(net, num_outputs=outputs, input_shape=shape, width=self.a.width)
        return bf.bayesify(made.to(self.a.device), method, num_data=self.num_train)

    def fit(self, model: bf.BayesianModule, **options: Any) -> Record:
        start = time.perf_counter()
        accelerator = "cuda" if self.cuda else "cpu"
        common = {"epochs": self.a.epochs, "seed": self.a.seed, "progress": False, "folder": self.a.folder}
        history = bf.fit(model, self.train, accelerator=accelerator, **common, **options)
        seconds = time.perf_counter() - start
        draws = max(1, getattr(model.posterior, "num_draws", 1))
        return {
            "epochs": self.a.epochs,
            "seconds": round(seconds, 1),
            "num_draws": draws,
            "train_nll": [round(row["nll"], 4) for row in history],
            **self.scores(model, draws),
        }

    def scores(self, model: bf.BayesianModule, draws: int) -> Record:
        """Of every draw by itself, and of their average."""
        target = torch.cat([y for _, y in self.test]).cpu()
        probs = model.predict(self.test, draws, keep_samples=True).samples.cpu()  # (draws, examples, classes)
        each = [score(p, target) for p in probs]
        mean = {key: statistics.fmean(one[key] for one in each) for key in each[0]}
        found: Record = {"single": {**mean, "curve": curve(probs[-1], target)}}
        if len(each) > 1:
            found["nll_of_draws"] = [round(one["nll"], 4) for one in each]
            average = probs.double().mean(0)
            found["predictive"] = {**score(average, target), "curve": curve(average, target)}
        return found


def score(probs: Tensor, target: Tensor) -> dict[str, float]:
    found = {name: float(METRICS[name](probs, target)) for name in ("accuracy", "nll")}
    calibration = {
        name: float(METRICS[name](probs, target, num_bins=BINS)) for name in ("ece", "adaptive_ece")
    }
    return {**found, **calibration}


def curve(probs: Tensor, target: Tensor) -> Record:
    """Confidence and accuracy in 8 bins of equally many examples (Fig. 2)."""
    bins = reliability(probs, target, BINS, equal_mass=True)
    return {
        "confidence": [round(v, 4) for v in bins.confidence.tolist()],
        "accuracy": [round(v, 4) for v in bins.accuracy.tolist()],
    }


def sgd(r: Run) -> Record:
    optimizer = partial(torch.optim.SGD, lr=r.a.lr, momentum=0.9, fused=r.cuda)
    model = r.model("resnetpp20", bf.Point(prior="weight_norm"))
    return r.fit(model, optimizer=optimizer, schedule="cosine")


def sgd_bn(r: Run) -> Record:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4, fused=r.cuda)
    return r.fit(r.model("resnet20", bf.Point()), optimizer=optimizer, schedule="cosine")


def sampled(sampler: str, cold: bool) -> Callable[[Run], Record]:
    def run(r: Run) -> Record:
        cycle = r.a.cycle * len(r.train)
        mass = STEP**2 * r.num_train / r.a.lr
        method = bf.ThermostatMCMC(
            sampler=sampler,
            prior="weight_norm",
            mass=mass,
            max_speed=FASTEST / mass**0.5,
            thermostat_rate=r.a.thermostat_rate,
            temperature=r.a.cold if cold else 1.0,
            burn_in=r.a.burn_in * len(r.train),
            cycle=cycle,
        )
        record = r.fit(r.model("resnetpp20", method), lr=STEP, schedule=Cyclic(cycle))
        rate = () if r.a.thermostat_rate is None else (f"κ {r.a.thermostat_rate:g}",)
        variant = [f"temperature {method.temperature:g}", f"lr {r.a.lr:g}", *rate]
        return {**record, "variant": ", ".join(variant), "options": str(method)}

    return run


ROWS: dict[str, Callable[[Run], Record]] = {
    "sgd": sgd,
    "sgd_bn": sgd_bn,
    "atmc": sampled("atmc", cold=False),
    "sgnht": sampled("sgnht", cold=False),
    "atmc_cold": sampled("atmc", cold=True),
    "sgnht_cold": sampled("sgnht", cold=True),
}


COLUMNS = {"accuracy": (100, 1), "nll": (1, 3), "ece": (1, 3), "adaptive_ece": (1, 3)}  # unit, digits


def show(records: list[Record]) -> None:
    """Accuracy, NLL and calibration error of every row, averaged over seeds, beside the paper's; then the curves."""
    rows, curves = [], []
    for (name, variant, epochs), mine in alike(records).items():
        for kind in ("single", "predictive"):
            found = [record[kind] for record in mine if kind in record]
            if not found:
                continue
            cells = [
                mean_and_error([scale * one[key] for one in found], digits)
                for key, (scale, digits) in COLUMNS.items()
            ]
            accuracy, nll = PAPER.get(name, {}).get(kind, ("-", "-"))
            draws = mine[0]["num_draws"] if kind == "predictive" else 1
            label = ", ".join([name, *([variant] if variant else []), kind])
            rows.append([label, *cells, *map(str, (accuracy, nll, len(found), epochs, draws))])
            gaps = [np.subtract(one["curve"]["accuracy"], one["curve"]["confidence"]) for one in found]
            curves.append([f"{label}, {epochs} epochs", *(f"{gap:+.3f}" for gap in np.mean(gaps, 0))])
    header = ["", "accuracy", "NLL", "ECE", "ECE, equal count", "paper", "NLL", "seeds", "epochs", "draws"]
    table(f"CIFAR-10, {BINS} bins", rows, header)
    table("accuracy − confidence, bins of equally many examples", curves, ["", *map(str, range(1, BINS + 1))])


def alike(records: list[Record]) -> dict[tuple[str, str, int], list[Record]]:
    """The seeds of one row with the same settings."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for record in sorted(records, key=lambda one: list(ROWS).index(one["row"])):
        found.setdefault((record["row"], record.get("variant", ""), record["epochs"]), []).append(record)
    return found


def mean_and_error(values: list[float], digits: int) -> str:
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", nargs="+", metavar="JSON", help="print these results, run nothing")
    parser.add_argument("--data-root")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--cycle", type=int, default=10, help="epochs of a cycle of the samplers' step size")
    parser.add_argument("--burn-in", type=int, help="epochs (left out: 40 %% of the run)")
    parser.add_argument(
        "--lr", type=float, default=0.05, help="of SGD without batch norm and of the samplers"
    )
    parser.add_argument("--cold", type=float, default=0.03, help="temperature of the cold rows")
    parser.add_argument("--thermostat-rate", type=float, help="κ (left out: the library's)")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=16, help="filters of the first stage")
    parser.add_argument("--num-train", type=int, help="only so many training examples")
    parser.add_argument("--num-test", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="for checkpoints of one row: the same command goes on there")
    parser.add_argument("--out", default="sampler_results.json")
    a = parser.parse_args()
    if a.table:
        show([record for path in a.table for record in json.loads(Path(path).read_text())])
        return
    if a.folder is not None and len(a.rows) > 1:
        parser.error("--folder holds one run: give one row")
    if a.data_root is None:
        parser.error("--data-root is missing: the folder with cifar-10-batches-bin")
    if a.burn_in is None:
        a.burn_in = a.epochs * 2 // 5
    torch.set_float32_matmul_precision("high")
    run, records = Run(a), []
    for name in a.rows:
        records.append({"row": name, "seed": a.seed, **ROWS[name](run)})
        print(name, json.dumps(records[-1]), flush=True)
        Path(a.out).write_text(json.dumps(records, indent=1))
    show(records)


if __name__ == "__main__":
    main()
