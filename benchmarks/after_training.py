"""What a trained network gains without being trained again: temperature, Laplace, SWAG and conformal sets beside the
plain network and deep ensembles of networks trained apart.

    python benchmarks/after_training.py --data mnist --data-root DATA --net lenet --num-train 5000 --seeds 0 1 2
    python benchmarks/after_training.py --data cifar10 --data-root DATA --net resnet18 --epochs 20 --device cuda

One plain network for each seed, by its recipe; every row starts from a copy of it. A tenth of the training images are
held out: for temperatures, prior precisions and conformal thresholds. Test images are measured on: accuracy, NLL, ECE,
NLL under five corruptions of severity 3, AUROC of the entropy against other images, coverage and mean size of the
conformal sets for 90 %; what a row takes in minutes and in epochs of plain training; and the lines of a user's code.
Means over seeds, ± their standard error.
"""

import argparse
import copy
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator

import bayesify as bf
from bayesify.data import DataSet, Loader, Split, load
from bayesify.nets import make
from bayesify.studies.corruptions import COMMON, corrupt
from timing import table

FOREIGN = {"mnist": "notmnist", "cifar10": "cifar100"}
KEYS = ("accuracy", "nll", "ece", "c-nll", "ood", "coverage", "set size", "minutes", "epochs")
#: what a user writes behind a network that is trained; conformal sets are one line more
CODE = {
    "plain": "",
    "+ temperature": "model = bf.bayesify(net, bf.Point())\nbf.calibrate(model, val)",
    "+ Laplace": "model = bf.bayesify(net, bf.Laplace())\nbf.fit(model, train, val)",
    "+ Laplace, Kronecker": "model = bf.bayesify(net, bf.Laplace(structure='kron'))\nbf.fit(model, train, val)",
    "+ SWAG": "model = bf.bayesify(net, bf.SWAG(), start='pretrained')\nbf.fit(model, train)",
    "deep ensemble of 5": "model = bf.bayesify(net, bf.DeepEnsemble(num_members=5))\nbf.fit(model, train)",
}
NUM_SHIFTED, SEVERITY = 2000, 3


class Setting:
    """Data, network and how to train it."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        whole = load(a.data, a.data_root)
        if a.num_train is not None:
            order = torch.randperm(len(whole.train), generator=Generator().manual_seed(0))
            whole = dataclasses.replace(whole, train=whole.train.take(order[: a.num_train]))
        self.set: DataSet = whole.with_validation(0.1, seed=0)
        self.test = self.set.test.take(torch.arange(min(a.num_test, len(self.set.test))))
        self.val = self.loader(self.set.val)
        images = torch.as_tensor(self.test.inputs[:NUM_SHIFTED])
        self.shifted = [Split(corrupt(images, c, SEVERITY), self.test.targets) for c in COMMON[::3]]
        self.foreign = self._foreign()

    def _foreign(self) -> Split | None:
        if self.a.data not in FOREIGN:
            return None
        return load(FOREIGN[self.a.data], self.a.data_root, test_only=True).test

    def loader(self, split: Split | None, seed: int | None = None) -> Loader:
        """Batches to train on, where there is a seed, or to look at."""
        assert split is not None
        options = {} if seed is None else {"shuffle": True, "seed": seed, "augment": self.a.augment}
        return Loader(split, self.a.batch, normalise=self.set.normalisation, device=self.a.device, **options)

    def network(self, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return make(self.a.net, num_outputs=10, input_shape=self.set.input_shape).to(self.a.device)

    def fit(self, model: Any, seed: int, val: Any = None, **options: Any) -> float:
        """Train; returns the seconds it took."""
        start = time.perf_counter()
        accelerator = "cuda" if self.a.device.startswith("cuda") else "cpu"
        bf.fit(
            model,
            self.loader(self.set.train, seed),
            val,
            seed=seed,
            accelerator=accelerator,
            precision=self.a.precision,
            progress=False,
            **options,
        )
        return time.perf_counter() - start

    def measured(self, model: Any) -> dict[str, float]:
        """All but what the row took."""
        found = self.evaluated(model, self.test)
        shifted = [self.evaluated(model, split)["nll"] for split in self.shifted]
        foreign = None if self.foreign is None else self.evaluated(model, self.test, self.foreign)
        bf.conformal(model, self.val)
        sets = torch.cat([model.predict(x).sets.cpu() for x, _ in self.loader(self.test)])
        inside = sets[torch.arange(len(sets)), self.test.targets]
        return {
            **{key: found[key] for key in ("accuracy", "nll", "ece")},
            "c-nll": statistics.fmean(shifted),
            "ood": float("nan") if foreign is None else foreign["auroc"],
            "coverage": float(inside.double().mean()),
            "set size": float(sets.double().sum(1).mean()),
        }

    def evaluated(self, model: Any, split: Split, foreign: Split | None = None) -> dict[str, float]:
        generator = Generator(self.a.device).manual_seed(0)
        other = None if foreign is None else self.loader(foreign)
        return bf.evaluate(model, self.loader(split), 20, ood=other, generator=generator)


def rows_of(setting: Setting, seed: int) -> dict[str, dict[str, float]]:
    """Every row of one seed."""
    num_data = len(setting.set.train)
    plain = bf.bayesify(setting.network(seed), bf.Point(), num_data=num_data)
    seconds = setting.fit(plain, seed, epochs=setting.a.epochs)
    epoch = seconds / setting.a.epochs
    weights = copy.deepcopy(plain.net.state_dict())

    def again(method: Any, start: str = "pretrained") -> Any:
        net = setting.network(seed)
        net.load_state_dict(weights)
        return bf.bayesify(net, method, num_data=num_data, start=start)

    def temperature() -> Any:
        model = again(bf.Point())
        bf.calibrate(model, setting.val)
        return model

    def after(method: Any) -> Callable[[], Any]:
        def made() -> Any:
            model = again(method)
            setting.fit(model, seed, setting.val)
            return model

        return made

    def ensemble() -> Any:
        model = bf.bayesify(setting.network(seed), bf.DeepEnsemble(num_members=5), num_data=num_data)
        setting.fit(model, seed, epochs=setting.a.epochs)
        return model

    makes = {
        "plain": lambda: plain,
        "+ temperature": temperature,
        "+ Laplace": after(bf.Laplace()),
        "+ Laplace, Kronecker": after(bf.Laplace(structure="kron")),
        "+ SWAG": after(bf.SWAG()),
        "deep ensemble of 5": ensemble,
    }
    found = {}
    for name in makes if setting.a.rows is None else setting.a.rows:
        make_row = makes[name]
        start = time.perf_counter()
        model = make_row()
        took = seconds if name == "plain" else time.perf_counter() - start
        found[name] = {**setting.measured(model), "minutes": took / 60, "epochs": took / epoch}
        print(
            f"seed {seed}  {name:24}" + "  ".join(f"{k} {v:.4f}" for k, v in found[name].items()), flush=True
        )
    return found


def over_seeds(values: list[float]) -> str:
    """Mean ± its standard error."""
    found = torch.tensor(values)
    error = f" ± {found.std() / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{found.mean():.4f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-root")
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--num-train", type=int)
    parser.add_argument("--num-test", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rows", nargs="+", choices=CODE)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--augment", choices=("none", "crop_flip"), default="none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="32-true")
    setting = Setting(parser.parse_args())
    runs = [rows_of(setting, seed) for seed in setting.a.seeds]
    rows = [
        [
            name,
            *(over_seeds([run[name][key] for run in runs]) for key in KEYS),
            str(len(CODE[name].splitlines())),
        ]
        for name in runs[0]
    ]
    table(f"{setting.a.data}, {setting.a.net}, {len(setting.set.train)} images", rows, ["", *KEYS, "lines"])


if __name__ == "__main__":
    main()
