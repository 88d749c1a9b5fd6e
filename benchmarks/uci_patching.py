"""UCI regression by ensemble patching, dropout and ensembles: Tables 12 and 13 of Chang et al.

    python benchmarks/uci_patching.py --data-root DIR                                   # 400 epochs, 5 splits, minutes
    python benchmarks/uci_patching.py --data-root DIR --epochs 4000 --splits 20 --draws 10000   # the paper's numbers

Protocol (D.7): one hidden layer of 50 ReLU units; batch norm (γ starts at 0.2, patched) after the input and the hidden
layer; dropout of 0.005 in its place, or neither for the ensemble; squared error on normalised targets, batch 100, Adam
with weight decay 0.01; the log predictive density is in original units, log mean_s N(y; f_s, 1/τ) with τ = 0.1. The
row "batch norm" is a single network with batch norm: what of the gain is not patching. The paper does not say whether
targets are normalised in training; --targets original leaves them as they are.
"""

import argparse
import math
import sys
import time

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make
from timing import table

TAU = 0.1  # output precision
PAPER = {  # RMSE and LPD of Tables 12 and 13: ECMP, EMP, dropout, ensemble
    "boston": ((3.48, 3.56, 3.97, 4.29), (-2.65, -2.70, -2.92, -2.81)),
    "concrete": ((5.61, 5.64, 7.06, 8.81), (-3.46, -3.59, -4.60, -5.09)),
    "energy": ((1.35, 1.24, 2.63, 3.40), (-2.19, -2.15, -2.42, -2.58)),
    "yacht": ((1.59, 1.60, 12.90, 29.48), (-2.25, -2.22, -10.79, -5.24)),
    "wine": ((0.60, 0.62, 0.63, 0.88), (-2.09, -2.09, -2.09, -2.14)),
}
METHODS = ("ECMP", "EMP", "dropout", "ensemble", "batch norm")


def build(name: str, num_inputs: int) -> bf.BayesianModule:
    """The model of one row; the weight decay is the optimiser's, so no method adds a prior."""
    norm = name in ("ECMP", "EMP", "batch norm")
    net = make(
        "mlp", num_outputs=1, input_shape=(num_inputs,), hidden=(50,), batch_norm=norm, input_norm=norm
    )
    if name == "dropout":
        flatten, first, relu, last = net
        net = nn.Sequential(flatten, nn.Dropout(0.005), first, nn.Dropout(0.005), relu, last)
    methods = {
        "ECMP": bf.EnsemblePatching(5, "element", gamma=0.2, l2=0.0, where=bf.where.norm),
        "EMP": bf.EnsemblePatching(5, "layer", gamma=0.2, l2=0.0, where=bf.where.norm),
        "dropout": bf.MCDropout(prior_precision=0.0),
        "ensemble": bf.DeepEnsemble(bf.Point(), 5),
        "batch norm": bf.Point(),
    }
    if name == "batch norm":
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.constant_(module.weight, 0.2)
    # nll = (y − f)² + constant at std = √½: the squared error
    return bf.bayesify(net, methods[name], bf.likelihood("normal", std=math.sqrt(0.5)), num_data=1)


def train(model: bf.BayesianModule, x: Tensor, y: Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.01)
    members = len(model.posterior.nets(model.net))
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for rows in order.split(100):
            if len(rows) < 2:  # batch norm needs two examples
                continue
            optimizer.zero_grad()
            (members * model.loss(x[rows], y[rows]).nll).backward()  # every member its own loss
            optimizer.step()


def score(model: bf.BayesianModule, x: Tensor, y: Tensor, scale: float, draws: int) -> tuple[float, float]:
    """RMSE and log predictive density in original units."""
    samples = model.predict(x, draws, keep_samples=True).samples * scale  # (draws, batch, 1)
    rmse = (samples.mean(0) - y * scale).square().mean().sqrt().item()
    log_density = torch.distributions.Normal(samples, TAU**-0.5).log_prob(y * scale)
    lpd = (log_density.logsumexp(0) - math.log(len(samples))).mean().item()
    return rmse, lpd


def run(name: str, method: str, split: int, a: argparse.Namespace) -> tuple[float, float]:
    data = load(f"uci_{name}", a.data_root, split=split)
    torch.manual_seed(split)
    parts = []
    for part in (data.train, data.test):
        loader = Loader(part, len(part), shuffle=False, normalise=data.normalisation)
        parts += list(next(iter(loader)))
    x, y, x_test, y_test = parts
    scale = float(data.normalisation.original_std(torch.ones(1, 1)))
    if a.targets == "original":
        y, y_test, scale = data.train.targets.float(), data.test.targets.float(), 1.0
    model = build(method, x.shape[1])
    train(model, x, y, a.epochs)
    return score(model, x_test, y_test, scale, a.draws)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--data", nargs="+", choices=list(PAPER), default=["boston", "yacht", "concrete"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--targets", choices=["normalised", "original"], default="normalised")
    a = parser.parse_args()
    for name in a.data:
        rows = []
        for method in a.methods:
            start = time.perf_counter()
            scores = torch.tensor([run(name, method, split, a) for split in range(a.splits)])  # (splits, 2)
            mean, error = scores.mean(0), scores.std(0) / a.splits**0.5
            paper = [
                f"{p[METHODS.index(method)]:.2f}" if method != "batch norm" else "-" for p in PAPER[name]
            ]
            cells = [f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
            rows.append([method, cells[0], paper[0], cells[1], paper[1]])
            seconds = time.perf_counter() - start
            print(f"... {name}, {method}: {' '.join(cells)}, {seconds:.0f} s", file=sys.stderr, flush=True)
        header = ["", "RMSE", "paper", "LPD", "paper"]
        table(
            f"{name}: {a.splits} splits, {a.epochs} epochs, {a.draws} draws, {a.targets} targets",
            rows,
            header,
        )


if __name__ == "__main__":
    main()
