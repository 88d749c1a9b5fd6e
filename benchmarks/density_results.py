"""Density propagation on MNIST and CIFAR-10: the results of paper 3 beside its figures.

    python benchmarks/density_results.py --data-root DATA --rows mnist --seeds 0 1 2 3 4 --out mnist.json
    python benchmarks/density_results.py --data-root DATA --rows small --methods vdp_full --seeds 0 --out full_0.json
    python benchmarks/density_results.py --table mnist.json full_*.json
    python benchmarks/density_results.py --data-root DATA --num-train 500 --num-test 200 --epochs 1   (does it run?)

A run is one (row, method, seed); its record is added to --out as soon as it is there. Runs are independent: start
them as processes with files of their own, and let --table merge the files and test what differs.

| row | network | methods |
|---|---|---|
| mnist | LeNet (20-50-500) | deterministic, bbb, vdp++, vdp |
| small | two convolutions, 8 and 16 filters, 18,474 weights: full covariance fits | the same and vdp_full |
| cifar10 | ResNet-18 | deterministic, vdp++, vdp |
| vit | ViT, patch 4, width 192, 6 blocks, on CIFAR-10 | deterministic, vdp++, vdp |

deterministic is bf.Point, bbb (Bayes by backprop) bf.MonteCarloVI with normal weights, vdp bf.DensityPropagation as it
is by default, with the covariance of the outputs, vdp++ the paper's, with variances alone, vdp_full with full
covariance. All train by Adam with one learning rate and schedule per row; priors are
N(0, 1/fan-in). Noise at a signal-to-noise ratio is added to images in 0 … 1, power per image, nothing clipped.
Pruning sets the weights with the smallest |mean| of the whole network to zero, without training again. Infidelity:
noise of std 0.1; sensitivity: changes up to 0.02; of the gradient of the predicted class's probability, in
normalised units.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

import bayesify as bf
from bayesify.data import DataSet, Loader, Split, load
from bayesify.methods import Method
from bayesify.nets import make
from bayesify.studies import compress, explain
from bayesify.studies.corruptions import add_noise
from density_tables import SHARES, SNR_DB, Record, print_table
from timing import add_record


@dataclass(frozen=True)
class Row:
    """One network on one data set: how it is trained, and by which methods."""

    data: str
    net: Callable[[DataSet], nn.Module]
    methods: tuple[str, ...]
    epochs: int
    batch: int
    lr: float
    kl_weight: float
    schedule: str = "cosine"
    augment: str = "none"


def named(name: str, **options: Any) -> Callable[[DataSet], nn.Module]:
    return lambda data: make(
        name, num_outputs=data.num_outputs, input_shape=tuple(data.input_shape), **options
    )


def small_net(data: DataSet) -> nn.Module:
    """At most 1,152 numbers in a layer: a full covariance is 5 MB for an example."""
    return nn.Sequential(
        *(nn.Conv2d(data.input_shape[0], 8, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2)),  # (8, 6, 6)
        *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()),  # 256
        *(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, data.num_outputs)),
    )


ALL = ("deterministic", "bbb", "vdp++", "vdp")
ROWS = {
    "mnist": Row("mnist", named("lenet"), ALL, 20, 128, 1e-3, 1.0),
    "small": Row("mnist", small_net, (*ALL, "vdp_full"), 6, 100, 2e-3, 1.0),
    "cifar10": Row(
        *("cifar10", named("resnet18"), ("deterministic", "vdp++", "vdp"), 30, 128, 1e-3, 0.1),
        augment="crop_flip",
    ),
    "vit": Row(
        *("cifar10", named("vit_small_patch4", dim=192, heads=3, depth=6), ("deterministic", "vdp++", "vdp")),
        *(60, 128, 1e-3, 0.1),
        schedule="onecycle",
        augment="crop_flip",
    ),
}


def method(name: str, kl_weight: float) -> Method:
    options: dict[str, Any] = {"prior": bf.prior("fan_in", bias_std=0.1), "kl_weight": kl_weight}
    return {
        "deterministic": lambda: bf.Point(),
        "bbb": lambda: bf.MonteCarloVI(**options),
        "vdp++": lambda: bf.DensityPropagation(covariance="diagonal", **options),
        "vdp": lambda: bf.DensityPropagation(covariance="outputs", **options),
        "vdp_full": lambda: bf.DensityPropagation(covariance="full", **options),
    }[name]()


class Run:
    """Data, network and measurements of one (row, method, seed)."""

    def __init__(self, a: argparse.Namespace, row: Row, name: str, seed: int) -> None:
        self.a, self.row, self.name, self.seed = a, row, name, seed
        self.data = load(row.data, a.data_root)
        self.train = first(self.data.train, a.num_train)
        self.test = first(self.data.test, a.num_test)
        torch.manual_seed(seed)
        net = row.net(self.data).to(a.device)
        chosen = method(name, row.kl_weight)
        self.model = bf.bayesify(net, chosen, num_data=len(self.train))
        self.eval_batch = 100 if name == "vdp_full" else 500

    def record(self, row_name: str) -> Record:
        start = time.perf_counter()
        self.fit()
        seconds = time.perf_counter() - start
        return {
            "row": row_name,
            "method": self.name,
            "seed": self.seed,
            "epochs": self.row.epochs,
            "num_train": len(self.train),
            "kl_weight": self.row.kl_weight,
            "seconds": round(seconds, 1),
            **self.measured(),
        }

    def fit(self) -> None:
        """Batches of one size, so that compiled code is compiled once."""
        row = self.row
        options = {"normalise": self.data.normalisation, "augment": row.augment, "device": self.a.device}
        batch = min(row.batch, len(self.train))
        loader = Loader(self.train, batch, shuffle=True, drop_last=True, seed=self.seed, **options)
        bf.fit(
            self.model,
            loader,
            epochs=row.epochs,
            lr=row.lr,
            schedule=row.schedule,
            kl_warmup=row.epochs / 4,
            seed=self.seed,
            accelerator="cuda" if self.a.device.startswith("cuda") else "cpu",
            precision=self.a.precision,
            compile=False if self.name == "vdp_full" else self.a.compile,
            progress=False,
        )

    def measured(self) -> Record:
        loader = Loader(self.test, self.eval_batch, normalise=self.data.normalisation, device=self.a.device)
        metrics = bf.evaluate(self.model, loader, self.a.num_draws, generator=self.generator())
        found: Record = {key: metrics[key] for key in ("accuracy", "nll", "ece")}
        found["noise"] = [[snr, *self.noisy(snr)] for snr in SNR_DB]
        if self.row.data == "mnist":
            found["pruning"] = [list(point) for point in self.pruning(loader)]
        return found | self.explained()

    def noisy(self, snr_db: float) -> tuple[float, float]:
        """Accuracy and mean variance of the predicted class's probability."""
        right, variance, draws = 0, 0.0, self.generator()
        noise = self.generator()
        for x, y in self.images():
            prediction = self.model.predict(
                self.normalised(add_noise(x, snr_db, noise)), self.a.num_draws, generator=draws
            )
            right += int((prediction.label == y).sum())
            variance += float(prediction.variance.gather(1, prediction.label[:, None]).sum())
        return right / len(self.test), variance / len(self.test)

    def pruning(self, loader: Loader) -> list[compress.Pruned]:
        def accuracy(pruned: Any) -> float:
            draws = self.a.num_draws
            return bf.evaluate(pruned, loader, draws, generator=self.generator())["accuracy"]

        return compress.pruning_curve(self.model, accuracy, SHARES)

    def explained(self) -> Record:
        """Infidelity (as it is, and with the map at its best scale) and sensitivity-max of the saliency map."""
        sums = {"infidelity": 0.0, "infidelity_scaled": 0.0, "sensitivity": 0.0}
        count, draws = 0, 5
        for x, _ in self.images():
            part = self.normalised(x[: self.a.num_explained - count])
            label = self.model.predict(part, self.a.num_draws, generator=self.generator()).label
            score = explain.probability_of(self.model, label, draws, self.seed)
            explained = explain.saliency(score, part)
            for key, scaled in (("infidelity", False), ("infidelity_scaled", True)):
                each = explain.infidelity(score, part, explained, 10, 0.1, self.generator(), normalise=scaled)
                sums[key] += float(each.sum())
            moved = explain.sensitivity(
                lambda z, score=score: explain.saliency(score, z), part, 5, 0.02, self.generator()
            )
            sums["sensitivity"] += float(moved.sum())
            count += len(part)
            if count >= self.a.num_explained:
                break
        return {key: value / count for key, value in sums.items()}

    def images(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Test images in 0 … 1 on the device."""
        return iter(Loader(self.test, self.eval_batch, device=self.a.device))

    def normalised(self, images: Tensor) -> Tensor:
        return self.data.normalisation.inputs(images)

    def generator(self) -> Generator:
        return Generator(self.a.device).manual_seed(self.seed)


def first(split: Split, num: int | None) -> Split:
    return split if num is None else split.take(torch.arange(min(num, len(split))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", help="a folder that holds MNIST and CIFAR-10")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=["mnist"])
    parser.add_argument("--methods", nargs="+", choices=[*ALL, "vdp_full"], help="all of the row")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, help="instead of the row's own")
    parser.add_argument("--batch", type=int, help="instead of the row's own")
    parser.add_argument("--lr", type=float, help="instead of the row's own")
    parser.add_argument("--kl-weight", type=float, help="instead of the row's own")
    parser.add_argument("--num-train", type=int, help="only so many training examples")
    parser.add_argument("--num-test", type=int, help="only so many test examples")
    parser.add_argument("--num-draws", type=int, default=20)
    parser.add_argument(
        "--num-explained", type=int, default=500, help="images whose saliency maps are measured"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], default="32-true")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default="auto")
    parser.add_argument("--out", default="density_results.json", help="records are added to it")
    parser.add_argument(
        "--table", nargs="+", metavar="FILE", help="print what these files hold; train nothing"
    )
    a = parser.parse_args()
    methods = {name: row.methods for name, row in ROWS.items()}
    if a.table:
        print_table(a.table, methods)
        return
    if a.data_root is None:
        parser.error("--data-root is missing: the folder that holds MNIST and CIFAR-10")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    changes = {k: getattr(a, k) for k in ("epochs", "batch", "lr", "kl_weight") if getattr(a, k) is not None}
    for name in a.rows:
        row = replace(ROWS[name], **changes)
        for m in row.methods if a.methods is None else a.methods:
            for seed in a.seeds:
                record = Run(a, row, m, seed).record(name)
                add_record(a.out, record)
                brief = {k: v for k, v in record.items() if k not in ("noise", "pruning")}
                print(json.dumps(brief), flush=True)
    print_table([a.out], methods)


if __name__ == "__main__":
    main()
