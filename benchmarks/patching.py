"""Ensemble patching: a training step ÷ the plain network's, predictions over 20 draws ÷ one plain forward.

    python benchmarks/patching.py --device cuda
    python benchmarks/patching.py --device cpu --batch 32 --modes eager --pairs 20

Targets (ResNet-18, batch 128, GPU): EMP ≤ 1.03, ECMP ≤ 1.10; 20 draws at batch 128 ≤ 12, at batch 1 ≤ 3 forwards.
Both sides of a ratio run at the same precision; for each side the best of the modes counts (see steps.py).
"""

import argparse
import copy
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
from steps import arguments, plain_forward, prepare, time_training, ways
from timing import table

METHODS = {
    "emp": lambda: bf.EnsemblePatching(),
    "ecmp": lambda: bf.EnsemblePatching(assignment="element"),
    "emp, per example": lambda: bf.EnsemblePatching(per_example=True),
    "emp, output layer": lambda: bf.EnsemblePatching(where=bf.where.output),  # what lies before runs once
    "dropout": lambda: bf.EnsemblePatching(assignment="dropout"),
}


def time_pairs(a: argparse.Namespace, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """For a busy CPU: plain and patched steps in turn, processor time; the median of the ratios of neighbours."""
    rows = []
    for name in a.methods:
        model = bf.bayesify(copy.deepcopy(net).to(a.device), METHODS[name](), num_data=50_000)
        plain = copy.deepcopy(net).to(a.device)
        sides = {
            "plain": (plain, lambda n=plain: F.cross_entropy(n(x), y)),
            "patched": (model, lambda n=model: n(x, target=y).total),
        }
        optimizers = {
            side: torch.optim.Adam(module.parameters(), lr=1e-4) for side, (module, _) in sides.items()
        }
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(a.pairs + 1):
            for side, (_module, loss) in sides.items():
                start = time.process_time()
                optimizers[side].zero_grad(set_to_none=True)
                loss().backward()
                optimizers[side].step()
                times[side].append(time.process_time() - start)
        ratios = [b / p for p, b in zip(times["plain"][1:], times["patched"][1:], strict=True)]
        milliseconds = [f"{1e3 * statistics.median(t[1:]):.0f}" for t in times.values()]
        low, high = (f"{q:.3f}" for q in (statistics.quantiles(ratios)[0], statistics.quantiles(ratios)[2]))
        rows.append([name, *milliseconds, f"{statistics.median(ratios):.3f}", f"{low} to {high}"])
    header = ["training step", "plain ms", "patched ms", "ratio", "middle half"]
    table(f"{a.net}, batch {a.batch}, {a.device}, {a.pairs} pairs, eager", rows, header)


def time_prediction(a: argparse.Namespace, net: nn.Module, x: torch.Tensor) -> None:
    rows = []
    for batch in (1, a.batch):
        part = x[:batch].contiguous()
        plain = plain_forward(a, net, part)[1].seconds
        for name in a.methods:
            model = bf.bayesify(copy.deepcopy(net).to(a.device), METHODS[name](), num_data=50_000)
            asked = {  # captured as it chooses by itself: twenty passes in a row take a minute to compile
                f"{way}{kind}": timed
                for kind, options in (
                    ("", {}),
                    (", loop", {"batched": False}),
                    (", batched", {"batched": True}),
                )
                for way, timed in ways(a, **options).items()
                if not (kind and way == "captured")
            }
            times = {}
            for way, timed in asked.items():
                times[way] = timed(a, model, part).seconds
                print(
                    f"... {name}, batch {batch}, {way}: {times[way] / plain:.2f}", file=sys.stderr, flush=True
                )
            ratios = [f"{seconds / plain:.2f}" for seconds in times.values()]
            rows.append([f"{name}, batch {batch}", f"{1e3 * plain:.2f}", *ratios])
    table("predict, 20 draws ÷ one plain forward", rows, ["", "forward ms", *asked])


def main() -> None:
    parser = arguments(__doc__, METHODS, ["emp", "ecmp"])
    parser.add_argument(
        "--pairs", type=int, default=0, help="training: so many plain and patched steps in turn"
    )
    a = parser.parse_args()
    net, x, y = prepare(a)
    if a.only != "prediction":
        time_pairs(a, net, x, y) if a.pairs else time_training(a, net, x, y, METHODS)
    if a.only != "training":
        time_prediction(a, net, x)


if __name__ == "__main__":
    main()
