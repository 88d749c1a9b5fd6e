"""A training step with full covariance (VDP) divided by one with variances alone (VDP++) and by the plain network's.

    python benchmarks/covariance_cost.py                                # both sides eager, on a GPU if there is one
    python benchmarks/covariance_cost.py --sizes 12 20 28 --batch 32    # CPU: does it run? (a minute)
    python benchmarks/covariance_cost.py --filters 32 --sizes 28 --batch 8

Paper 3 (MNIST, batch 512): full covariance takes about 10 times the time and memory of the plain network (40 GB);
VDP++ is about 4 times faster and takes a tenth of the memory. The network is one 5×5 convolution with stride 2,
pooling and a dense layer. A layer of n numbers has n variances and n² covariances, those between kernels included (the
paper's code keeps them within a kernel), so ratios grow with the size of the images.
Memory on a CPU is what autograd keeps for backward (as `bf.graph_size` counts), on a GPU the peak of the step.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from timing import Timing, measure, table

METHODS = {
    "VDP++": bf.DensityPropagation(covariance="diagonal", activation="first_order"),
    "VDP": bf.DensityPropagation(covariance="full", activation="first_order"),
}


def network(filters: int, size: int) -> nn.Module:
    side = ((size - 5) // 2 + 1) // 2
    layers = (nn.Conv2d(1, filters, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(filters * side * side, 10))


def step_of(module: nn.Module, x: Tensor, y: Tensor) -> Timing:
    device = x.device.type
    plain = not isinstance(module, bf.BayesianModule)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)

    def loss() -> Tensor:
        return F.cross_entropy(module(x), y) if plain else module(x, target=y).total

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    timing = measure(step, device)
    if device == "cuda":
        return timing
    return Timing(timing.seconds, 4 * bf.graph_size(loss) / 2**20)  # four bytes a number


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[12, 20, 28], help="height and width of the images"
    )
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    a = parser.parse_args()
    rows = []
    for size in a.sizes:
        torch.manual_seed(0)
        net = network(a.filters, size).to(a.device)
        x = torch.rand(a.batch, 1, size, size, device=a.device)
        y = torch.randint(10, (a.batch,), device=a.device)
        base = step_of(copy.deepcopy(net), x, y)
        found = {
            name: step_of(bf.bayesify(copy.deepcopy(net), method, num_data=60_000), x, y)
            for name, method in METHODS.items()
        }
        fast, full = found["VDP++"], found["VDP"]
        rows.append(
            [
                f"{size}×{size}, {a.filters * ((size - 5) // 2 + 1) ** 2} numbers",
                *(f"{1e3 * t.seconds:.1f} ms, {t.megabytes:.1f} MB" for t in (base, fast, full)),
                *(f"{full.seconds / t.seconds:.1f}" for t in (fast, base)),
                *(f"{full.megabytes / t.megabytes:.1f}" for t in (fast, base)),
            ]
        )
    ratios = [f"{what}, VDP ÷ {other}" for what in ("time", "memory") for other in ("VDP++", "plain")]
    title = f"training step, batch {a.batch}, {a.device}; first order on both sides, eager"
    table(title, rows, ["images, largest layer", "plain", "VDP++", "VDP", *ratios])


if __name__ == "__main__":
    main()
