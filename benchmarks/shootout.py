"""Every method by its default beside the plain network and deep ensembles: same network, data and budget.

    python benchmarks/shootout.py --data-root DATA --rows point emp ivon --seeds 0 1 2 --out OUT
    python benchmarks/shootout.py --data-root DATA --rows 'emp:{"method": {"spread": 0.3}}' --validation --out OUT
    python benchmarks/shootout.py --table OUT
    python benchmarks/shootout.py --table OUT --json benchmarks/results/shootout.json

CIFAR-10, ResNet-18, batches of 256, crops and flips, bf16-mixed; training is `bf.fit(model, loader, epochs=20)` with
no other option. A row may change the method's fields ("method"), the options of `bf.fit` ("fit") and the epochs, or
train a plain network for some epochs first ("pre"), which is how settings are chosen, with --validation: the last
5,000 training images (in an order of their own) are held out and stand in the place of the test set. Reported runs
train on all 50,000.

A run writes OUT/<row>_<seed>.npz: log probabilities of the test set, with and without a view of its own for every
draw, under 15 corruptions of severity 3 (2,000 images; with --validation every third of them), entropies of
CIFAR-100's test set and of noise, and what it cost.
`--table` makes all figures from these files (shootout_tables.py), so that ensembles are averages of runs; --json adds
them to a file of figures, where those of other rows and seeds stay. Runs are independent: --jobs N starts so many
processes beside each other.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

import bayesify as bf
from bayesify.atomic import read_json, write_json
from bayesify.cli.where_text import parse_where
from bayesify.data import Loader, Split, load
from bayesify.data.loader import derived_seed
from bayesify.nets import make
from bayesify.studies.corruptions import COMMON, corrupt
from shootout_tables import collected, print_tables, put_tables

NUM_VALIDATION, NUM_CORRUPTED, SEVERITY = 5000, 2000, 3


class Data:
    """The parts of CIFAR-10 that a run sees, on its device."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a, self.set = a, load("cifar10", a.data_root)
        train = self.set.train
        order = torch.randperm(len(train), generator=Generator().manual_seed(0))
        kept, held = order[:-NUM_VALIDATION], order[-NUM_VALIDATION:]
        self.train = train.take(kept) if a.validation else train
        self.test = train.take(held) if a.validation else self.set.test
        if a.num_train is not None:
            self.train = self.train.take(torch.arange(a.num_train))
        if a.num_test is not None:
            self.test = self.test.take(torch.arange(a.num_test))
        self.ood = self._ood()

    def _ood(self) -> dict[str, Tensor]:
        noise = torch.randint(256, (2000, 3, 32, 32), generator=Generator().manual_seed(0)).to(torch.uint8)
        try:
            others = torch.as_tensor(load("cifar100", self.a.data_root, test_only=True).test.inputs[:])
        except FileNotFoundError:
            return {"noise": noise}
        return {"cifar100": others, "noise": noise}

    def loader(self, seed: int) -> Loader:
        return Loader(
            self.train,
            self.a.batch,
            shuffle=True,
            drop_last=True,
            seed=seed,
            device=self.a.device,
            normalise=self.set.normalisation,
            augment="crop_flip",
        )

    def batches(self, images: Tensor) -> Iterator[Tensor]:
        """Raw images, bytes or floats in 0 … 1, on the device."""
        yield from torch.as_tensor(images[:]).to(self.a.device).split(500)

    def normalised(self, images: Tensor) -> Tensor:
        loader = Loader(Split(images, torch.zeros(len(images)).long()), len(images), device=self.a.device)
        loader._normalise = self.set.normalisation.to(self.a.device)
        return next(iter(loader))[0]

    def corrupted(self) -> dict[str, Tensor]:
        """The first images under every corruption, the same for every model; made once for a machine."""
        images = torch.as_tensor(self.test.inputs[:NUM_CORRUPTED]).to(self.a.device)
        return {
            name: corrupt(images, name, SEVERITY, Generator(self.a.device).manual_seed(derived_seed(0, c)))
            for c, name in enumerate(COMMON[:: 3 if self.a.validation else 1])
        }


class Run:
    """One row and seed."""

    def __init__(self, data: Data, row: str, seed: int) -> None:
        self.data, self.a, self.seed = data, data.a, seed
        self.label, _, text = row.partition(":")
        self.changes: dict[str, Any] = json.loads(text) if text else {}
        self.name = self.changes.get("name", self.label)

    def record(self) -> dict[str, np.ndarray]:
        torch.manual_seed(self.seed)
        net = make(self.a.net, num_outputs=10, input_shape=(3, 32, 32)).to(self.a.device)
        size = sum(p.numel() for p in net.parameters())
        start = time.perf_counter()
        if "pre" in self.changes:
            plain = bf.bayesify(net, bf.Point(), num_data=len(self.data.train))
            self.fit(plain, epochs=self.changes["pre"])
            weights = plain.mean_net().state_dict()
            net = make(self.a.net, num_outputs=10, input_shape=(3, 32, 32)).to(self.a.device)
            net.load_state_dict(weights)
        model = bf.bayesify(net, method(self.name, self.changes), num_data=len(self.data.train))
        history = self.fit(model, self.epochs, **self.changes.get("fit", {}))
        seconds = time.perf_counter() - start
        trained = sum(p.numel() for p in model.parameters()) / size
        about = {
            "row": self.label,
            "changes": self.changes,
            "seed": self.seed,
            "epochs": self.epochs,
            "num_train": len(self.data.train),
            "num_draws": self.a.num_draws,
            "seconds": seconds,
            "parameters": trained,
            "notes": history.notes,
            "default": "clean" if model.own_views() is None else "views",
            "epoch_seconds": [row.get("seconds") for row in history],
        }
        start = time.perf_counter()
        arrays = self.predictions(model)
        about["predict_seconds"] = time.perf_counter() - start
        if model.posterior.sampling == "moments":
            x = self.data.normalised(torch.as_tensor(self.data.test.inputs[:500]))
            found = bf.diagnostics.moment_check(model, [(x, self.data.test.targets[:500])], num_examples=500)
            about["moments"] = dataclasses.asdict(found)
        return {"about": np.array(json.dumps(about, default=str)), **arrays}

    @property
    def epochs(self) -> int:
        return int(self.changes.get("epochs", self.a.epochs))

    def fit(self, model: Any, epochs: int, **options: Any) -> Any:
        options = {"compile": {"on": True, "off": False}.get(self.a.compile, "auto"), **options}
        return bf.fit(
            model,
            self.data.loader(self.seed),
            epochs=epochs,
            seed=self.seed,
            accelerator="cuda" if self.a.device.startswith("cuda") else "cpu",
            precision=self.a.precision,
            progress=False,
            **options,
        )

    def predictions(self, model: Any) -> dict[str, np.ndarray]:
        found = {
            "target": self.data.test.targets.numpy().astype(np.uint8),
            "clean": self.log_probs(model, self.data.test.inputs),
            "views": self.log_probs(model, self.data.test.inputs, views=True),
        }
        for name, images in self.data.corrupted().items():
            found[f"corrupted/{name}"] = self.log_probs(model, images)
            found[f"corrupted_views/{name}"] = self.log_probs(model, images, views=True)
        for name, images in self.data.ood.items():
            logs = torch.from_numpy(self.log_probs(model, images)).double()
            found[f"ood/{name}"] = -(logs.exp() * logs).sum(1).half().numpy()
        return found

    def log_probs(self, model: Any, images: Tensor, views: bool = False) -> np.ndarray:
        """log of the mean probability over draws; with `views` every draw has one of its own. On CUDA
        networks that draw predict in half precision."""
        half = self.a.device.startswith("cuda") and model.posterior.sampling != "moments"
        generator = Generator(self.a.device).manual_seed(self.seed)
        parts = []
        for x in self.data.batches(images):
            number, augment = (self.a.num_views, self.data.set.views()) if views else (self.a.num_draws, None)
            x = self.data.normalised(x)
            with torch.autocast("cuda", torch.float16, enabled=half):
                probs = model.predict(x, number, augment=augment, generator=generator).probs
            parts.append(probs.clamp_min(1e-12).log().half().cpu())
        return torch.cat(parts).numpy()


def method(name: str, changes: dict[str, Any]) -> Any:
    """By its name, with the fields that a row changes."""
    fields = dict(changes.get("method", {}))
    if "prior" in fields:
        fields["prior"] = bf.prior(fields["prior"], **changes.get("prior_options", {}))
    if "where" in fields:
        fields["where"] = parse_where(fields["where"])
    if name == "deep_ensemble":
        return bf.DeepEnsemble(bf.Point(), **fields)
    if name == "ecmp":
        return bf.EnsemblePatching(assignment="element", **fields)
    return bf.methods.METHODS[name](**fields)


def start_jobs(a: argparse.Namespace) -> None:
    """All runs, --jobs at a time, each in a process of its own. The time over, those that still run are stopped."""
    waiting = [(row, seed) for seed in a.seeds for row in a.rows]
    running: list[tuple[subprocess.Popen[bytes], Path, float]] = []
    begun = time.perf_counter()
    while waiting or running:
        if time.perf_counter() - begun > a.seconds:
            for process, log, _ in running:
                process.kill()
                print(f"{log.stem}: stopped, the time is over")
            print("not begun:", *waiting)
            return
        while waiting and len(running) < a.jobs:
            running.append(start(a, *waiting.pop(0)))
        time.sleep(0.2)
        for entry in [e for e in running if e[0].poll() is not None]:
            running.remove(entry)
            process, log, start_time = entry
            last = log.read_text().strip().splitlines()[-3 if process.returncode else -1 :]
            seconds = time.perf_counter() - start_time
            print(f"{log.stem}: rc {process.returncode}, {seconds:.0f} s", *last, sep="\n  ", flush=True)


def start(a: argparse.Namespace, row: str, seed: int) -> tuple["subprocess.Popen[bytes]", Path, float]:
    """One run as a process; (process, log, when it began)."""
    given = {"--rows": [row], "--seeds": [str(seed)]}
    for name, value in vars(a).items():
        if value is True:
            given[f"--{name}"] = []
        elif name not in ("rows", "seeds", "jobs", "seconds", "table", "json", "markdown") and value not in (
            None,
            False,
        ):
            given["--" + name.replace("_", "-")] = [str(value)]
    log = Path(a.out) / f"{row.partition(':')[0]}_{seed}.log"
    command = [
        sys.executable,
        __file__,
        *(text for flag, values in given.items() for text in (flag, *values)),
    ]
    process = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT)
    return process, log, time.perf_counter()


def tabulate(a: argparse.Namespace) -> None:
    """The tables of folders of runs and of a file of figures, which is written."""
    path = None if a.json is None else Path(a.json)
    data = collected(a.table, read_json(path) if path is not None and path.exists() else None)
    print_tables(data)
    if path is not None:
        write_json(path, data)
    if a.markdown is not None:
        put_tables(Path(a.markdown), data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root")
    parser.add_argument("--rows", nargs="+", default=["point"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--num-draws", type=int, default=20)
    parser.add_argument("--num-views", type=int, default=20)
    parser.add_argument("--num-train", type=int)
    parser.add_argument("--num-test", type=int)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--compile", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--jobs", type=int, default=0, help="processes beside each other; 0: in this one")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="of --jobs: those that still run then are stopped"
    )
    parser.add_argument("--out", default="shootout")
    parser.add_argument("--table", nargs="*", help="folders of runs")
    parser.add_argument("--json", help="file of figures that --table reads and writes")
    parser.add_argument("--markdown", help="page whose tables, between their marks, --table writes anew")
    a = parser.parse_args()
    if a.table is not None:
        return tabulate(a)
    Path(a.out).mkdir(parents=True, exist_ok=True)
    if a.jobs:
        return start_jobs(a)
    data = Data(a)
    for seed in a.seeds:
        for row in a.rows:
            run = Run(data, row, seed)
            np.savez_compressed(Path(a.out) / f"{run.label}_{seed}.npz", **run.record())
            print(f"{run.label}_{seed} is written")
    return None


if __name__ == "__main__":
    main()
