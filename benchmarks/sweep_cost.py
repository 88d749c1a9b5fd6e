"""What the covariance of the outputs costs: a pass with it, and a training step with the probe, both divided by the
plain network's. On a GPU all are compiled and captured as CUDA graphs.

    python benchmarks/sweep_cost.py                                       # ResNet-18, batch 128
    python benchmarks/sweep_cost.py --rows forward --kernels 25
    python benchmarks/sweep_cost.py --rows step --blocks 1 1 1 1          # shallower: compiles in half the time
    python benchmarks/sweep_cost.py --device cpu --batch 4 --eager --blocks 1 1 1 1

--kernels N adds the N kernels that take most of the time.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from bayesify.nets.resnet import BasicBlock, ResNet
from step_profile import show
from steps import capture
from timing import free, measure, table

COVARIANCES = ("diagonal", "outputs")


class Run:
    """What is timed, and how."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        self.net = ResNet(BasicBlock, a.blocks, 64, 10, 3, "cifar", "projection").to(a.device)
        self.x = torch.randn(a.batch, 3, 32, 32, device=a.device)
        self.y = torch.randint(10, (a.batch,), device=a.device)

    def models(self) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {"plain": copy.deepcopy(self.net)}
        for covariance in self.a.covariances:
            method = bf.DensityPropagation(covariance=covariance)
            found[covariance] = bf.bayesify(copy.deepcopy(self.net), method, num_data=50_000)
        return found

    def compiled(self, model: nn.Module) -> Callable[..., object]:
        free(self.a.device)
        return model if self.a.eager else torch.compile(model, dynamic=False)

    def forward(self, model: nn.Module) -> Callable[[], object]:
        called = self.compiled(model.eval())

        def forward() -> object:
            with torch.no_grad():
                return called(self.x)

        return forward

    def step(self, model: nn.Module) -> Callable[[], object]:
        called, cuda = self.compiled(model.train()), self.a.device == "cuda"
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=cuda, capturable=cuda)

        def loss() -> Tensor:
            plain = not isinstance(model, bf.BayesianModule)
            return F.cross_entropy(called(self.x), self.y) if plain else called(self.x, target=self.y).total

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss().backward()
            optimizer.step()

        return step

    def rows(self, what: str) -> None:
        base, rows = 0.0, []
        for name, model in self.models().items():
            start = time.perf_counter()
            function = getattr(self, what)(model)
            function()
            compiling = time.perf_counter() - start
            peak = 0.0
            if self.a.device == "cuda" and not self.a.eager:
                function, peak = capture(function)
            seconds = measure(function, self.a.device, self.a.seconds).seconds
            base = base or seconds
            rows.append(
                [name, f"{1e3 * seconds:.2f}", f"{seconds / base:.2f}", f"{peak:.0f}", f"{compiling:.0f}"]
            )
            print("...", what, *rows[-1], file=sys.stderr, flush=True)
            if self.a.kernels and self.a.device == "cuda" and name != "plain":
                show(name, function, self.a.kernels)
            del function
        title = f"{what}, blocks {self.a.blocks}, batch {self.a.batch}, {self.a.device}"
        table(title, rows, ["", "ms", "÷ plain", "peak MB", "first call s"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", nargs="+", choices=("forward", "step"), default=["forward", "step"])
    parser.add_argument("--covariances", nargs="+", choices=COVARIANCES, default=list(COVARIANCES))
    parser.add_argument("--blocks", nargs="+", type=int, default=[2, 2, 2, 2], help="of each stage")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--eager", action="store_true", help="neither compiled nor captured")
    parser.add_argument("--kernels", type=int, default=0, help="that a profile on a GPU shows")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    run = Run(parser.parse_args())
    for what in run.a.rows:
        run.rows(what)


if __name__ == "__main__":
    main()
