"""How many images a second each corruption takes, at 32×32 and 224×224; and CIFAR-10-C made on the way.

    python benchmarks/corruptions.py --device cuda
    python benchmarks/corruptions.py --device cuda --run RUN   # also evaluates a run of bayesify train

With --run the last lines are the evaluation of its network on 15 corruptions × 5 severities of its test part.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from bayesify.cli.run import Run
from bayesify.studies.corruptions import COMMON, CORRUPTIONS, SEVERITIES, corrupt
from bayesify.studies.suites import SUITES, Subject


def seconds(images: Tensor, name: str, severity: int) -> float:
    """The best of three calls, after one to warm up."""
    times = []
    for _ in range(4):
        wait(images.device)
        start = time.perf_counter()
        corrupt(images, name, severity)
        wait(images.device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def evaluate(device: torch.device, folder: Path, root: str | None, limit: int) -> None:
    """Corrupt and predict every test image 75 times."""
    run = Run.at(folder)
    ds = run.data(root=root)
    test = ds.test.take(torch.arange(min(limit, len(ds.test))))
    subject = Subject(run.model(device=device), test, run.normalisation, batch_size=1000)
    start = time.perf_counter()
    outcome = SUITES["corruption"](subject)
    wait(device)
    taken = time.perf_counter() - start
    count = len(test) * len(COMMON) * len(SEVERITIES)
    print(
        f"{ds.name}-C, corrupted and predicted: {count:,} images in {taken:.1f} s, {count / taken:,.0f} images/s"
    )
    for name, row in zip(COMMON, outcome.arrays["accuracy"], strict=True):
        print(f"{name:20s}" + "".join(f"{value:8.1%}" for value in row))
    print(", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", type=int, default=256, help="images of 32×32 at a time")
    parser.add_argument("--large", type=int, default=16, help="images of 224×224 at a time")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--run", type=Path, help="folder of a run on image data")
    parser.add_argument("--data-root", help="where its data lie now")
    parser.add_argument("--limit", type=int, default=10_000, help="test images of the run")
    options = parser.parse_args()
    device = torch.device(options.device)
    batches = {32: options.small, 224: options.large}
    print(f"{'corruption':20s}" + "".join(f"{f'{side}×{side} images/s':>22s}" for side in batches))
    for name in CORRUPTIONS:
        line = f"{name:20s}"
        for side, count in batches.items():
            images = torch.rand(count, 3, side, side, device=device)
            line += f"{count / seconds(images, name, options.severity):22,.0f}"
        print(line, flush=True)
    if options.run is not None:
        evaluate(device, options.run, options.data_root, options.limit)


if __name__ == "__main__":
    main()
