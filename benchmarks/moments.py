"""Moments of whole networks against drawing the weights: relative errors of the output's std, and time.

    python benchmarks/moments.py
    python benchmarks/moments.py --nets mlp lenet --draws 4000

Random weights at three widths (std as a fraction of each tensor's root mean square); random inputs. For every way of
propagating: mean over outputs of |std / std by Monte Carlo − 1|, and of |mean − Monte Carlo's| / std.
"""

import argparse
import copy
import math
import time

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.nets import make
from timing import table

NETS: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "mlp": ((20,), {"hidden": (50, 50)}),
    "lenet": ((1, 28, 28), {}),
    "resnet18": ((3, 32, 32), {}),
    "vit_tiny": ((3, 32, 32), {}),
}
WAYS = {
    "first order": {"activation": "first_order", "norm": "full"},
    "exact": {"norm": "full"},
    "exact, total norm": {},
    "full covariance": {"covariance": "full"},
}
WIDTHS = (0.02, 0.05, 0.1, 0.2)


def settle(net: nn.Module, shape: tuple[int, ...]) -> None:
    """Running statistics of batch norm from random inputs, so that eval mode means something."""
    net.train()
    with torch.no_grad():
        for _ in range(20):
            net(torch.randn(32, *shape))
    net.eval()


def monte_carlo(model: bf.BayesianModule, x: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        outputs = torch.stack([model.draw()(x) for _ in range(draws)])
    return outputs.mean(0), outputs.std(0)


def errors(net: nn.Module, x: Tensor, width: float, draws: int, ways: list[str]) -> list[str]:
    reference = bf.bayesify(copy.deepcopy(net), bf.DensityPropagation(covariance="diagonal", init_std=width))
    mean, std = monte_carlo(reference, x, draws)
    cells = []
    for way in ways:
        try:
            method = bf.DensityPropagation(covariance="diagonal", init_std=width, **WAYS[way])  # type: ignore[arg-type]
            model = bf.bayesify(copy.deepcopy(net), method)
            start = time.perf_counter()
            with torch.no_grad():
                result = model(x)
            seconds = time.perf_counter() - start
        except (NotImplementedError, MemoryError):
            cells.append("-")
            continue
        off = (result.var.sqrt() / std - 1).abs().mean().item()
        shift = ((result.mean - mean) / std).abs().mean().item()
        cells.append(f"{100 * off:.0f} %, {shift:.2f}, {1e3 * seconds:.0f} ms")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    a = parser.parse_args()
    rows = []
    for name in a.nets:
        shape, options = NETS[name]
        torch.manual_seed(0)
        net = make(name, num_outputs=10, input_shape=shape, **options)
        settle(net, shape)
        x = torch.randn(a.batch, *shape)
        ways = list(WAYS) if name == "mlp" else list(WAYS)[:3]
        for width in WIDTHS:
            cells = errors(net, x, width, a.draws, ways)
            rows.append([f"{name}, {width:g}", *cells, *["-"] * (len(WAYS) - len(ways))])
    noise = 100 / math.sqrt(2 * a.draws)
    title = f"error of std, error of mean in std, time; Monte Carlo itself: {noise:.1f} % of the std"
    table(title, rows, ["network, width", *WAYS])


if __name__ == "__main__":
    main()
