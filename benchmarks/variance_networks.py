"""Variance networks on MNIST (LeNet-5) and CIFAR-10 (VGG-like): the results of paper 5 beside its figures.

    python benchmarks/variance_networks.py --data-root DATA --rows variance --epochs 100 --out variance_0.json
    python benchmarks/variance_networks.py --data-root DATA --rows layer neuron --epochs 60 --out table2_0.json
    python benchmarks/variance_networks.py --table *_0.json
    python benchmarks/variance_networks.py --data-root DATA --rows layer --epochs 20 --num-train 5000 --batch 50  (CPU)

A row's record is added to --out as soon as it is there. Rows and seeds are independent: start them as processes with
files of their own, and let --table merge the files.

The paper trains 200 (VGG: 550) epochs. Its phase transition waits for the data: while means still carry the classes,
log α rests where the KL of a layer is about as large as the loss of the data (measured: both fall together), and
passes on only as the training loss falls. A short run gets there by these settings:

- the KL weighs 30 times as much where one dense layer is random (--kl-weight). Past the transition the KL of a layer
  is nearly 0 (below 1e-3 per example), whatever its weight. Where several layers are, it weighs once: the small layers
  keep their means, and too much noise in them costs accuracy. LeNet's four layers, ensembles: 99.21 % with weight 1
  (100 epochs; one draw 97.98 %, means 11.35 %), 98.55 % with 3 (100 epochs), 97.94 % with 10 (60 epochs), 47 % with
  10 on 5,000 images (20 epochs). VGG-like, 40 epochs: 87.9 % with weight 1, 83.8 % with 8.3, means at 10.0 % in both;
- log α has 30 times the learning rate (--log-alpha-lr). Adam forgets its gradients within 20 steps, which the method's
  optimiser sees to: they fall as 1/α, and 1,000 steps of memory hold log α back;
- log α starts at −5, as published. Higher starts do not help, nor a KL weight that goes back to 1 while the loss is
  still large: log α falls back to where the means can be used (measured).

The ELBO is that of a KL weight of 1. Inputs lie in [0, 1]; batch norm uses its running statistics in all three modes.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make
from bayesify.studies import attacks, compress
from bayesify.studies.compress import SPARSITIES
from bayesify.studies.diagnostics import PhaseRecorder, kappa, log_alpha, phase_figures
from timing import add_record
from variance_speed import four_layers
from variance_tables import Row, print_table

KL_WEIGHT = 30.0  # of rows with one random layer; of those with several it is 1
DENSE = bf.where.matching(r"^head\.1\.")  # the 500-unit layer of LeNet
STUDENT = bf.prior("student_t", df=1e-16)
LONG = ("rows", "attack", "options")  # what is only in the file


class Run:
    """Data and settings of one data set."""

    def __init__(self, a: argparse.Namespace, name: str) -> None:
        self.a, self.data = a, load(name, a.data_root)
        train = self.data.train if a.num_train is None else self.data.train.take(torch.arange(a.num_train))
        test = self.data.test if a.num_test is None else self.data.test.take(torch.arange(a.num_test))
        augment = {"augment": "crop_flip"} if name.startswith("cifar") else {}
        self.num_train = len(train)
        self.train = Loader(train, a.batch, shuffle=True, device=a.device, seed=a.seed, **augment)
        self.plain = Loader(train, 1000, device=a.device)
        self.test = Loader(test, 1000, device=a.device)

    def net(self, name: str, **options: Any) -> nn.Module:
        torch.manual_seed(self.a.seed)
        if name == "lenet":
            options = {"batch_norm": self.a.batch_norm, **options}
        shape, outputs = self.data.input_shape, self.data.num_outputs
        return make(name, num_outputs=outputs, input_shape=shape, **options).to(self.a.device)

    def variance(
        self, parameterization: str = "layer", layers: str = "dense", **options: Any
    ) -> bf.VarianceNetwork:
        """The method of a row. Weights with an α or σ each have no transition to wait for: their KL weighs once."""
        start: dict[str, Any] = {"where": DENSE} if layers == "dense" else {}
        if parameterization in ("layer", "neuron"):
            own = KL_WEIGHT if layers == "dense" else 1.0
            start["kl_weight"] = own if self.a.kl_weight is None else self.a.kl_weight
        if parameterization in ("layer", "neuron", "weight"):
            start |= {"log_alpha_lr": self.a.log_alpha_lr, "init_log_alpha": self.a.init_log_alpha}
        return bf.VarianceNetwork(parameterization=parameterization, **{**start, **options})

    def fit(self, net: nn.Module, method: Any, **options: Any) -> tuple[bf.BayesianModule, Row]:
        """Train and report the three modes, the ELBO of the training set and log α."""
        model = bf.bayesify(net, method, num_data=self.num_train)
        start = time.perf_counter()
        settings = {"epochs": self.a.epochs, "lr": 1e-3, "schedule": "linear", "seed": self.a.seed}
        accelerator = "cuda" if self.a.device.startswith("cuda") else "cpu"
        bf.fit(model, self.train, accelerator=accelerator, progress=False, **settings, **options)
        row: Row = {
            "epochs": self.a.epochs,
            "num_train": self.num_train,
            "seconds": round(time.perf_counter() - start, 1),
            "options": str(method),
        }
        modes = bf.inference_modes(model, self.test, self.a.num_draws)
        row |= {mode: {k: m[k] for k in ("accuracy", "nll", "ece")} for mode, m in modes.items()}
        return model, row

    def elbo(self, model: bf.BayesianModule, kl_offset: float = 0.0) -> float:
        """−N·nll − KL, nll of one draw each; `kl_offset` is a constant of the prior that papers leave out."""
        total, model = 0.0, model.eval()
        with torch.no_grad():
            for x, y in self.plain:
                total += float(F.cross_entropy(model(x.to(self.a.device)), y, reduction="sum"))
            return -total - float(model.kl()) + kl_offset


def dropout(r: Run) -> Row:
    return r.fit(r.net("lenet", dropout=0.5), bf.MCDropout())[1]


def variance(r: Run) -> Row:
    """All four layers; then the dense layer swapped to zero mean (eq. 11)."""
    model, row = r.fit(r.net("lenet"), r.variance(layers="several"))
    row |= {"elbo": r.elbo(model), "log_alpha": _means(log_alpha(model))}
    bf.zero_mean(model, DENSE)
    return {**row, "swapped to zero mean": bf.evaluate(model, r.test, r.a.num_draws)["accuracy"]}


def table2(parameterization: str) -> Callable[[Run], Row]:
    def run(r: Run) -> Row:
        model, row = r.fit(r.net("lenet"), r.variance(parameterization))
        return {**row, "elbo": r.elbo(model), "log_alpha": _means(log_alpha(model))}

    return run


def zero_mean(noise: str) -> Callable[[Run], Row]:
    def run(r: Run) -> Row:
        method = r.variance("zero_mean", noise=noise, abs_after=True)
        return r.fit(r.net("lenet"), method)[1]

    return run


def student(r: Run) -> Row:
    model, row = r.fit(r.net("lenet"), r.variance(prior=STUDENT))
    return {**row, "log_alpha": _means(log_alpha(model))}


def phase(r: Run) -> Row:
    """Section 6.4: softplus after the dense layer; accuracies and κ by epoch; sparse ensembles (Figs. 1, 3 to 5)."""
    folder = Path(r.a.out).parent
    recorder = PhaseRecorder(r.test, r.plain, num_draws=10, every=max(1, r.a.epochs // 20))
    net = r.net("lenet", activation="softplus", conv_activation="relu")
    model, row = r.fit(net, r.variance(), on_epoch=recorder.record)
    scores = kappa(model, r.plain)
    name, values = next(iter(scores.items()))
    curves = {
        fill: compress.sparsity_curve(model, scores, r.test, fill=fill, num_draws=r.a.num_draws)
        for fill in ("zero", "mean")
    }
    figures = {
        "accuracy": phase_figures.accuracy_figure(recorder.rows),
        "kappa": phase_figures.kappa_figure(recorder.rows, name),
        "above": phase_figures.above_figure(recorder.rows, name),
        "sparsity": phase_figures.sparsity_figure(curves, row["ensemble"]["accuracy"]),
    }
    for title, figure in figures.items():
        figure.savefig(folder / f"phase_{title}.png", dpi=120)
    bf.save(model, folder / "phase_dense.safetensors")
    dense = (folder / "phase_dense.safetensors").stat().st_size
    share = SPARSITIES[5]
    compress.sparsify(
        model, scores, values.flatten().double().kthvalue(int(share * values.numel())).values.item()
    )
    return {
        **row,
        "transition": str(recorder.transition()),
        "rows": [vars(each) for each in recorder.rows],
        "curves": {fill: [[p.sparsity, p.accuracy] for p in points] for fill, points in curves.items()},
        "bytes": {
            "dense": dense,
            f"{share:.0%} zero": compress.save_sparse(model, folder / "phase_sparse.safetensors"),
        },
    }


def vgg(members: int, noisy: bool) -> Callable[[Run], Row]:
    """The VGG-like net with dropout, or with the paper's four variance layers; then Fig. 2."""

    def run(r: Run) -> Row:
        net = r.net("vgg_like")
        method = r.variance(layers="several", where=four_layers(net)) if noisy else bf.MCDropout()
        if members > 1:
            method = bf.DeepEnsemble(method if noisy else bf.Point(), members)
        model, row = r.fit(net, method)
        x, y = next(iter(r.test))
        x, y = x[: r.a.num_attacked], y[: r.a.num_attacked]
        target = (y + 1 + torch.randint(9, y.shape, device=y.device)) % 10
        options = {"step": r.a.attack_step, "num_steps": 20, "num_draws": 10, "eval_draws": 10}
        curve = attacks.attack_curve(model, x, target, targeted=True, **options)
        return {**row, "attack": [each._asdict() for each in curve]}

    return run


def _means(tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(t.mean()) for name, t in tensors.items()}


MNIST: dict[str, Callable[[Run], Row]] = {
    "dropout": dropout,
    "variance": variance,
    **{name: table2(name) for name in ("layer", "neuron", "weight", "additive")},
    "zero_mean": zero_mean("normal"),
    "zero_mean_uniform": zero_mean("uniform"),
    "zero_mean_bernoulli": zero_mean("bernoulli"),
    "student": student,
    "phase": phase,
}
CIFAR: dict[str, Callable[[Run], Row]] = {
    "vgg_dropout": vgg(1, False),
    "vgg_variance": vgg(1, True),
    "vgg_deep_ensemble": vgg(5, False),
    "vgg_variance_ensemble": vgg(5, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root")
    parser.add_argument("--rows", nargs="+", choices=[*MNIST, *CIFAR], default=list(MNIST))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--log-alpha-lr", type=float, default=30.0, help="as a multiple of the others'")
    parser.add_argument("--kl-weight", type=float, help="instead of the row's own, of rows with shared α")
    parser.add_argument("--init-log-alpha", type=float, default=-5.0)
    parser.add_argument("--batch-norm", action=argparse.BooleanOptionalAction, default=True, help="of LeNet")
    parser.add_argument("--num-draws", type=int, default=50, help="of the ensemble")
    parser.add_argument("--num-train", type=int, help="only so many training examples")
    parser.add_argument("--num-test", type=int)
    parser.add_argument("--num-attacked", type=int, default=500)
    parser.add_argument("--attack-step", type=float, default=0.5 / 255, help="of inputs in [0, 1]")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="variance_networks.json", help="records are added to it")
    parser.add_argument(
        "--table", nargs="+", metavar="FILE", help="print what these files hold; train nothing"
    )
    a = parser.parse_args()
    if a.table:
        print_table(a.table)
        return
    if a.data_root is None:
        parser.error("--data-root is missing: the folder that holds MNIST and CIFAR-10")
    torch.set_float32_matmul_precision("high")
    runs: dict[str, Run] = {}
    for name in a.rows:
        data = "mnist" if name in MNIST else "cifar10"
        runs[data] = runs[data] if data in runs else Run(a, data)
        record = {"row": name, "seed": a.seed, **{**MNIST, **CIFAR}[name](runs[data])}
        add_record(a.out, record)
        print(name, json.dumps({k: v for k, v in record.items() if k not in LONG}), flush=True)
    print_table([a.out])


if __name__ == "__main__":
    main()
