"""Variance networks: a training step ÷ the plain network's, and the share of the exact KL (VGG-like, CIFAR shapes).

    python benchmarks/variance_speed.py --device cuda
    python benchmarks/variance_speed.py --device cpu --batch 16 --modes eager

Targets (GPU, compiled): at most 1.5 with the paper's four variance layers, 2 with every layer; the KL below 2 %.
"""

import argparse
import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
import steps
from bayesify.nets import make
from steps import MODES
from timing import measure, table


def four_layers(net: nn.Module) -> Any:
    """The last three convolutions and the first dense layer."""
    convs = [name for name, m in net.named_modules() if isinstance(m, nn.Conv2d)][-3:]
    dense = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)][:1]
    return bf.where.matching("|".join(f"^{name}\\." for name in convs + dense))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES if cuda else MODES[:1])
    parser.add_argument("--parameterizations", nargs="+", default=["layer", "weight", "zero_mean"])
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    net = make("vgg_like", num_outputs=10, input_shape=(3, 32, 32), dropout=False).to(a.device)
    x = torch.randn(a.batch, 3, 32, 32, device=a.device)
    y = torch.randint(10, (a.batch,), device=a.device)

    def timed(module: nn.Module, loss_of: Any) -> tuple[str, float]:
        mode, timing = steps.best({m: steps.training_step(a, module, loss_of, m) for m in a.modes})
        return mode, timing.seconds

    mode, plain = timed(copy.deepcopy(net), lambda n: F.cross_entropy(n(x), y))
    rows = [["plain network", f"{1e3 * plain:.2f}", "1.000", "-", mode]]
    for title, chosen in (
        ("four layers", four_layers(net)),
        ("every layer", bf.where.linear | bf.where.conv),
    ):
        for parameterization in a.parameterizations:
            method = bf.VarianceNetwork(parameterization=parameterization, where=chosen)
            model = bf.bayesify(copy.deepcopy(net), method, num_data=50_000)
            mode, seconds = timed(model, lambda n: n(x, target=y).total)
            share = kl_seconds(model, mode, a.device) / seconds
            cells = [f"{1e3 * seconds:.2f}", f"{seconds / plain:.3f}", f"{share:.3f}", mode]
            rows.append([f"{title}, {parameterization}", *cells])
    title = f"vgg_like, batch {a.batch}, {a.precision}, {a.device}"
    table(title, rows, ["training step", "ms", "ratio", "KL ÷ step", "best"])


def kl_seconds(model: bf.BayesianModule, mode: str, device: str) -> float:
    """The KL with its gradient, alone, in the step's mode: more than in the step, where its kernels have company."""
    if not model.kl().requires_grad:
        return 0.0  # that of zero-mean layers is a constant
    function = model.kl if mode == "eager" else torch.compile(model.kl, dynamic=False)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        function().backward()

    return (steps.captured(run) if mode == "captured" else measure(run, device)).seconds


if __name__ == "__main__":
    main()
