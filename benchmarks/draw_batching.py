"""Predicting with 20 draws: all at once by vmap, or one after the other? And which way `predict` chooses.

    python benchmarks/draw_batching.py
    python benchmarks/draw_batching.py --device cuda --nets lenet resnet18

On a CPU the times are CPU seconds of one thread, so that other work on the machine does not count.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

import bayesify as bf
from bayesify.nets import make
from bayesify.posteriors import Call
from bayesify.predict.prediction import _chunk
from timing import measure, table

NETS: dict[str, tuple[dict, tuple[int, ...]]] = {
    "mlp": ({"hidden": (50,)}, (13,)),
    "mlp wide": ({"hidden": (400, 400)}, (784,)),
    "lenet": ({}, (1, 28, 28)),
    "resnet20": ({}, (3, 32, 32)),
    "resnet18": ({}, (3, 32, 32)),
    "vit_small_patch4": ({}, (3, 32, 32)),
}


def seconds(function: Callable[[], object], device: str) -> float:
    if device != "cpu":
        return measure(function, device, budget=0.7).seconds
    function()
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 128])
    parser.add_argument("--draws", type=int, default=20)
    a = parser.parse_args()
    if a.device == "cpu":
        torch.set_num_threads(1)
    rows = []
    for name in a.nets:
        options, shape = NETS[name]
        net = make(name.split()[0], num_outputs=10, input_shape=shape, **options).to(a.device).eval()
        model = bf.bayesify(net, bf.MonteCarloVI())
        weights = sum(w.numel for w in model.selection.random)
        for batch in a.batches:
            x = torch.randn(batch, *shape, device=a.device)
            at_once, one_by_one = (
                seconds(partial(model.predict, x, num_draws=a.draws, batched=batched), a.device)
                for batched in (True, False)
            )
            chosen = at_once if _chunk(model, Call((x,), {}), a.draws, None) > 1 else one_by_one
            rows.append(
                [
                    f"{name}, batch {batch}",
                    f"{weights:,}",
                    f"{1e3 * at_once:.2f}",
                    f"{1e3 * one_by_one:.2f}",
                    f"{at_once / one_by_one:.2f}",
                    f"{chosen / min(at_once, one_by_one):.2f}",
                ]
            )
            print("...", *rows[-1], flush=True)
    header = ["network", "random weights", "at once ms", "one by one ms", "ratio", "chosen / best"]
    table(f"{a.draws} draws, {a.device}", rows, header)


if __name__ == "__main__":
    main()
