"""What the covariance of the outputs costs: a pass with it, and a training step with the probe, both divided by the
plain network's fastest. Every figure is printed when it is known, the cheap ones first.

    python benchmarks/sweep_cost.py --seconds 100                         # ResNet-18, batch 128: what 100 s give
    python benchmarks/sweep_cost.py --lines "forward outputs" --modes compiled --kernels 25
    python benchmarks/sweep_cost.py --lines "step outputs" --blocks 1 1   # two stages: compiles in half the time
    python benchmarks/sweep_cost.py --device cpu --batch 4 --count        # operations and bytes, with the largest

Modes: "eager"; "captured": the eager code as one CUDA graph, nothing is compiled; "compiled": by Inductor, on a GPU
captured as well. --kernels N adds the N kernels (with --count the N operations) that take most.
"""

import argparse
import copy
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import bayesify as bf
from bayesify.nets.resnet import BasicBlock, ResNet
from step_profile import show
from steps import capture
from timing import free, measure, table

LINES = (
    "forward plain",
    "step plain",
    "forward diagonal",
    "forward outputs",
    "step diagonal",
    "step outputs",
)
MODES = ("eager", "captured", "compiled")


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

    def model(self, name: str) -> nn.Module:
        net = copy.deepcopy(self.net)
        if name == "plain":
            return net
        return bf.bayesify(net, bf.DensityPropagation(covariance=name), num_data=50_000)

    def function(self, line: str, mode: str) -> Callable[[], object]:
        what, name = line.split()
        free(self.a.device)
        model = self.model(name).train(what == "step")
        called = torch.compile(model, dynamic=False) if mode == "compiled" else model
        return getattr(self, what)(model, called)

    def forward(self, model: nn.Module, called: Callable[..., object]) -> Callable[[], object]:
        def forward() -> object:
            with torch.no_grad():
                return called(self.x)

        return forward

    def step(self, model: nn.Module, called: Callable[..., Any]) -> Callable[[], object]:
        cuda = self.a.device == "cuda"
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=cuda, capturable=cuda)

        def loss() -> Tensor:
            plain = not isinstance(model, bf.BayesianModule)
            return F.cross_entropy(called(self.x), self.y) if plain else called(self.x, target=self.y).total

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss().backward()
            optimizer.step()

        return step

    def timed(self, line: str, mode: str) -> tuple[float, float, float]:
        """(seconds, peak MB, seconds of the first call)."""
        start, peak, cuda = time.perf_counter(), 0.0, self.a.device == "cuda"
        function = self.function(line, mode)
        function()
        first = time.perf_counter() - start
        if cuda and mode != "eager":
            function, peak = capture(function)
        timing = measure(function, self.a.device, self.a.each)
        if self.a.kernels and cuda and not line.endswith("plain"):
            show(f"{line}, {mode}", function, self.a.kernels)
        return timing.seconds, peak or timing.megabytes, first


class Operations(TorchDispatchMode):
    """Counts operations that compute something, and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, Tensor)]
        if not func.is_view and tensors:
            name = str(func)
            self.calls[name] += 1
            self.bytes[name] += sum(
                t.element_size()
                * (t.untyped_storage().nbytes() // t.element_size() if 0 in t.stride() else t.numel())
                for t in tensors
            )
        return result

    def rows(self, top: int) -> list[list[str]]:
        return [[n, f"{self.calls[n]:,}", f"{size / 1e6:,.1f}"] for n, size in self.bytes.most_common(top)]


def count(run: Run, line: str) -> list[str]:
    function = run.function(line, "eager")
    function()  # layouts are learned
    with Operations() as seen:
        function()
    if run.a.kernels:
        table(line, seen.rows(run.a.kernels), ["operation", "calls", "MB"])
    return [line, f"{seen.calls.total():,}", f"{seen.bytes.total() / 1e6:,.1f}"]


class Figures:
    """What is known so far, each line beside the fastest of the plain network."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.found: dict[tuple[str, str], tuple[float, float, float]] = {}

    def row(self, line: str, mode: str) -> list[str]:
        seconds, peak, first = self.found[line, mode]
        plain = [t[0] for (other, _), t in self.found.items() if other == line.split()[0] + " plain"]
        ratio = f"{seconds / min(plain):.2f}" if plain else "-"
        return [line, mode, f"{1e3 * seconds:.2f}", ratio, f"{peak:.0f}", f"{first:.0f}"]

    def add(self, line: str, mode: str, timed: tuple[float, float, float]) -> None:
        self.found[line, mode] = timed
        print("...", *self.row(line, mode), flush=True)

    def show(self) -> None:
        rows = [self.row(*key) for key in list(self.found)]
        table(self.title, rows, ["", "mode", "ms", "÷ plain", "peak MB", "first call s"])

    def stop(self) -> None:
        """Ends the program, whatever a compiler is at."""
        self.show()
        print("time is up", flush=True)
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, default=["captured", "compiled"] if cuda else ["eager"]
    )
    parser.add_argument("--blocks", nargs="+", type=int, default=[2, 2, 2, 2], help="of each stage")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--count", action="store_true", help="operations and bytes instead of times")
    parser.add_argument("--kernels", type=int, default=0, help="or operations, that take most")
    parser.add_argument("--each", type=float, default=1.0, help="seconds of each measurement")
    parser.add_argument("--seconds", type=float, help="after which the program ends with what it knows")
    a = parser.parse_args()
    run = Run(a)
    title = f"blocks {a.blocks}, batch {a.batch}, {a.device}"
    if a.count:
        table(title, [count(run, line) for line in a.lines], ["", "operations", "MB read and written"])
        return
    figures = Figures(title)
    if a.seconds is not None:
        clock = threading.Timer(a.seconds, figures.stop)
        clock.daemon = True
        clock.start()
    for mode in a.modes:
        for line in sorted(a.lines, key=LINES.index):
            figures.add(line, mode, run.timed(line, mode))
    figures.show()


if __name__ == "__main__":
    main()
