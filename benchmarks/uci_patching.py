"""UCI regression by ensemble patching, dropout and ensembles: Tables 12 and 13 of Chang et al.

    python benchmarks/uci_patching.py --data-root DIR --data yacht                 # 4000 epochs, 20 splits
    python benchmarks/uci_patching.py --data-root DIR --epochs 400                 # all five sets
    python benchmarks/uci_patching.py --data-root DIR --weight-decay 0.01          # the other reading of "0.01"

Protocol (D.7): one hidden layer of 50 ReLU units; batch norm (γ starts at 0.2, patched) after the input and the hidden
layer; dropout of 0.005 in its place, or neither for the ensemble; squared error, batch 100, Adam. RMSE and log
predictive density are in original units; the latter is log mean_s N(y; f_s, 1/τ) with τ = 0.1, the mean over targets.
The row "batch norm" is a single network with batch norm: what of the gain is not patching.

What the paper leaves open: targets are normalised here, like the inputs. "Weight decay of 0.01" is taken in the form
of its appendix C.1, λ‖w‖² with λ = 0.01 / batch size, which is torch's weight_decay = 2λ = 0.0002: with it the rows of
ECMP and EMP come out as printed.

The networks of all splits train at once: they are stacked, and vmap runs the loss of one model over the stack.
"""

import argparse
import copy
import math
import sys
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import bayesify as bf
from bayesify.data import Normalisation, load
from bayesify.nets import make
from timing import table

TAU = 0.1  # output precision
BATCH = 100
FILES = {"wine": "wine_red"}  # where the file has another name
TARGETS = {"energy": 2}  # columns of y
PAPER = {  # RMSE and LPD of Tables 12 and 13: ECMP, EMP, dropout, ensemble
    "boston": ((3.48, 3.56, 3.97, 4.29), (-2.65, -2.70, -2.92, -2.81)),
    "concrete": ((5.61, 5.64, 7.06, 8.81), (-3.46, -3.59, -4.60, -5.09)),
    "energy": ((1.35, 1.24, 2.63, 3.40), (-2.19, -2.15, -2.42, -2.58)),
    "yacht": ((1.59, 1.60, 12.90, 29.48), (-2.25, -2.22, -10.79, -5.24)),
    "wine": ((0.60, 0.62, 0.63, 0.88), (-2.09, -2.09, -2.09, -2.14)),
}
METHODS = ("ECMP", "EMP", "dropout", "ensemble", "batch norm")


class Part(NamedTuple):
    """The data of one split: normalised inputs and targets to train on, inputs and original targets to test on."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    normalisation: Normalisation


def read(name: str, root: str, split: int) -> Part:
    file = f"uci_{FILES.get(name, name)}"
    sets = [load(file, root, split=split, target=column) for column in range(TARGETS.get(name, 1))]
    train, test = (torch.cat([getattr(s, p).targets for s in sets], 1).float() for p in ("train", "test"))
    normalisation = Normalisation.of(sets[0].train.inputs, train)
    x, x_test = (normalisation.inputs(getattr(sets[0], p).inputs) for p in ("train", "test"))
    return Part(x, normalisation.targets(train), x_test, test, normalisation)


def build(name: str, num_inputs: int, num_targets: int) -> bf.BayesianModule:
    """The model of one row; the weight decay is the optimiser's, so no method adds a prior."""
    norm = name in ("ECMP", "EMP", "batch norm")
    net = make(
        "mlp",
        num_outputs=num_targets,
        input_shape=(num_inputs,),
        hidden=(50,),
        batch_norm=norm,
        input_norm=norm,
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
    # nll = Σ (y − f)² + constant at std = √½: the squared error
    return bf.bayesify(net, methods[name], bf.likelihood("normal", std=math.sqrt(0.5)), num_data=1)


def train(models: list[bf.BayesianModule], x: Tensor, y: Tensor, a: argparse.Namespace) -> None:
    """Every model on its own split, all in step: x (splits, rows, inputs), y (splits, rows, targets)."""
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]  # (splits, *shape) each
    parameters = {name: p.detach() for name, p in parameters.items()}
    optimizer = torch.optim.Adam(parameters.values(), weight_decay=a.weight_decay, fused=True)
    one = copy.deepcopy(models[0]).train()
    members = len(one.posterior.nets(one.net))

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        nll = functional_call(one, (parameters, buffers), (x,), {"target": y}).nll
        return members * nll / y.shape[-1]  # every member its own loss; the mean over targets

    def total(*args: object) -> Tensor:
        return vmap(loss, randomness="different")(*args).sum()

    gradients = {}
    pays = a.epochs * (x.shape[1] // BATCH) > 10_000  # compiling costs as much as some thousand steps save
    splits = torch.arange(len(x))[:, None]
    for _ in range(a.epochs):
        order = torch.rand(x.shape[:2]).argsort(1)  # every split in an order of its own
        for rows in order.split(BATCH, 1):
            size = rows.shape[1]
            if size < 2:  # batch norm needs two examples
                continue
            batch = x[splits, rows], y[splits, rows]
            if size not in gradients:
                traced = make_fx(grad(total))(parameters, copy.deepcopy(buffers), *batch)
                gradients[size] = torch.compile(traced, dynamic=False) if pays and size == BATCH else traced
            with torch.no_grad():
                found = gradients[size](parameters, buffers, *batch)
            for name, p in parameters.items():
                p.grad = found[name].contiguous()  # the fused optimiser takes memory as it lies
            optimizer.step()
    for i, model in enumerate(models):
        model.load_state_dict({k: v[i] for k, v in (parameters | buffers).items() if k in model.state_dict()})


def score(model: bf.BayesianModule, part: Part, draws: int) -> tuple[float, float]:
    """RMSE and log predictive density in original units."""
    samples = part.normalisation.original_mean(model.predict(part.x_test, draws, keep_samples=True).samples)
    rmse = (samples.mean(0) - part.y_test).square().mean().sqrt().item()
    log_density = torch.distributions.Normal(samples, TAU**-0.5).log_prob(part.y_test)
    lpd = (log_density.logsumexp(0) - math.log(len(samples))).mean().item()
    return rmse, lpd


def run(method: str, parts: list[Part], a: argparse.Namespace) -> Tensor:
    """RMSE and log predictive density of every split: (splits, 2)."""
    models = []
    for split, part in enumerate(parts):
        torch.manual_seed(split)
        models.append(build(method, part.x.shape[1], part.y.shape[1]))
    train(models, torch.stack([part.x for part in parts]), torch.stack([part.y for part in parts]), a)
    return torch.tensor([score(m, part, a.draws) for m, part in zip(models, parts, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--data", nargs="+", choices=list(PAPER), default=list(PAPER))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=4000)
    parser.add_argument("--draws", type=int, default=200, help="the paper has 10,000")
    parser.add_argument("--weight-decay", type=float, default=2 * 0.01 / BATCH)
    a = parser.parse_args()
    for name in a.data:
        rows = []
        parts = [read(name, a.data_root, split) for split in range(a.splits)]
        for method in a.methods:
            start = time.perf_counter()
            scores = run(method, parts, a)
            mean, error = scores.mean(0), scores.std(0) / a.splits**0.5
            paper = [
                f"{p[METHODS.index(method)]:.2f}" if method != "batch norm" else "-" for p in PAPER[name]
            ]
            cells = [f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
            rows.append([method, cells[0], paper[0], cells[1], paper[1]])
            seconds = time.perf_counter() - start
            print(f"... {name}, {method}: {' '.join(cells)}, {seconds:.0f} s", file=sys.stderr, flush=True)
        title = (
            f"{name}: {a.splits} splits, {a.epochs} epochs, {a.draws} draws, weight decay {a.weight_decay:g}"
        )
        table(title, rows, ["", "RMSE", "paper", "LPD", "paper"])


if __name__ == "__main__":
    main()
