"""How many images a second each corruption takes, at 32×32 and 224×224; and CIFAR-10-C made on the way.

    python benchmarks/corruptions.py --device cuda
    python benchmarks/corruptions.py --device cuda --data /path/to/data   # also evaluates on the CIFAR-10 test part

The last line is the evaluation of one network on 15 corruptions × 5 severities of the test part.
"""

import argparse
import time

import torch
from torch import Tensor

from bayesify.corruptions import COMMON, CORRUPTIONS, SEVERITIES, corrupt


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


def evaluate_cifar(device: torch.device, root: str | None, limit: int) -> None:
    """Corrupt and predict every test image 75 times, with an untrained ResNet-18: the cost is the same."""
    import bayesify as bf
    from bayesify import nets
    from bayesify.data import load
    from bayesify.suites import SUITES, Subject

    ds = load("cifar10", root)
    test = ds.test.take(torch.arange(min(limit, len(ds.test))))
    net = nets.make("resnet18", num_outputs=10, input_shape=(3, 32, 32))
    model = bf.bayesify(net, bf.Point()).to(device)
    subject = Subject(model, test, ds.normalisation, batch_size=1000)
    start = time.perf_counter()
    SUITES["corruption"](subject)
    wait(device)
    taken = time.perf_counter() - start
    count = len(test) * len(COMMON) * len(SEVERITIES)
    print(
        f"CIFAR-10-C, corrupted and predicted: {count:,} images in {taken:.1f} s, {count / taken:,.0f} images/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", type=int, default=256, help="images of 32×32 at a time")
    parser.add_argument("--large", type=int, default=16, help="images of 224×224 at a time")
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--data", help="folder with CIFAR-10")
    parser.add_argument("--limit", type=int, default=10_000, help="test images of CIFAR-10")
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
    if options.data is not None:
        evaluate_cifar(device, options.data, options.limit)


if __name__ == "__main__":
    main()
