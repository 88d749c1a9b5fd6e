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
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
import steps
from bayesify.nets import make
from steps import MODES, autocast, best, in_mode
from timing import Timing, measure, table

METHODS = {
    "emp": lambda: bf.EnsemblePatching(),
    "ecmp": lambda: bf.EnsemblePatching(assignment="element"),
    "emp, per example": lambda: bf.EnsemblePatching(per_example=True),
    "dropout": lambda: bf.EnsemblePatching(assignment="dropout"),
}


def time_pairs(a: argparse.Namespace, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """For a busy CPU: plain and patched steps in turn, processor time; the median of the ratios of neighbours."""
    rows = []
    for name in a.methods:
        model = bf.bayesify(copy.deepcopy(net), METHODS[name](), num_data=50_000)
        plain = copy.deepcopy(net)
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


def time_training(a: argparse.Namespace, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    plain = copy.deepcopy(net)
    base = {m: steps.training_step(a, plain, lambda n: F.cross_entropy(n(x), y), m) for m in a.modes}
    rows = [["plain network", *_cells(base, base)]]
    for name in a.methods:
        model = bf.bayesify(copy.deepcopy(net), METHODS[name](), num_data=50_000)
        times = {m: steps.training_step(a, model, lambda n: n(x, target=y).total, m) for m in a.modes}
        rows.append([name, *_cells(times, base)])
    header = ["training step", *(f"{m} ms" for m in a.modes), "ratio", "best", "memory ratio"]
    table(f"{a.net}, batch {a.batch}, {a.precision}, {a.device}", rows, header)


def _cells(times: dict[str, Timing], base: dict[str, Timing]) -> list[str]:
    (mode, mine), (_, plain) = best(times), best(base)
    memory = f"{mine.megabytes / plain.megabytes:.2f}" if plain.megabytes else "-"
    return [
        *(f"{1e3 * t.seconds:.2f}" for t in times.values()),
        f"{mine.seconds / plain.seconds:.3f}",
        mode,
        memory,
    ]


def time_prediction(a: argparse.Namespace, net: nn.Module, x: torch.Tensor) -> None:
    rows = []
    for batch in (1, a.batch):
        part = x[:batch].contiguous()
        plain = best({mode: _forward(a, net, part, mode) for mode in a.modes if mode != "captured"})[
            1
        ].seconds
        for name in a.methods:
            model = bf.bayesify(copy.deepcopy(net), METHODS[name](), num_data=50_000)
            ways = {"loop": {"batched": False}, "batched": {"batched": True}, "auto": {}}
            if a.modes != ["eager"]:
                ways |= {"compiled loop": {"batched": False, "compile": True}, "compiled": {"compile": True}}
                ways |= {"compiled batched": {"batched": True, "compile": True}}
            times = {}
            for way, options in ways.items():
                torch._dynamo.reset()
                times[way] = measure(partial(_predict, a, model, part, options), a.device).seconds
                print(
                    f"... {name}, batch {batch}, {way}: {times[way] / plain:.2f}", file=sys.stderr, flush=True
                )
            ratios = [f"{seconds / plain:.2f}" for seconds in times.values()]
            rows.append([f"{name}, batch {batch}", f"{1e3 * plain:.2f}", *ratios])
    table("predict, 20 draws ÷ one plain forward", rows, ["", "forward ms", *ways])


def _forward(a: argparse.Namespace, net: nn.Module, x: torch.Tensor, mode: str) -> Timing:
    called = in_mode(copy.deepcopy(net).eval(), mode)

    def forward() -> None:
        with torch.no_grad(), autocast(a):
            called(x)

    return measure(forward, a.device)


def _predict(
    a: argparse.Namespace, model: bf.BayesianModule, x: torch.Tensor, options: dict[str, bool]
) -> None:
    with autocast(a):
        model.predict(x, 20, **options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES if cuda else MODES[:2])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS)[:2])
    parser.add_argument("--only", choices=["training", "prediction"], help="one of the two tables")
    parser.add_argument(
        "--pairs", type=int, default=0, help="training: so many plain and patched steps in turn"
    )
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    net = make(a.net, num_outputs=10, input_shape=(3, a.size, a.size)).to(a.device)
    x = torch.randn(a.batch, 3, a.size, a.size, device=a.device)
    y = torch.randint(10, (a.batch,), device=a.device)
    if a.only != "prediction":
        (time_pairs if a.pairs else time_training)(a, net, x, y)
    if a.only != "training":
        time_prediction(a, net, x)


if __name__ == "__main__":
    main()
