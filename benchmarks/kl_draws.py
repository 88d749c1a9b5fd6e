"""A training step with M Monte-Carlo draws of the KL: direct, gradient accumulation, repar (paper 1, Figs. 1, 2, 6).

    python benchmarks/kl_draws.py
    python benchmarks/kl_draws.py --device cpu --nets lenet --draws 1 10 --budget 1
    python benchmarks/kl_draws.py --nets resnet18 --family radial --memory-cap 11
    python benchmarks/kl_draws.py --methods repar --draws 1 1000 --capture
    python benchmarks/kl_draws.py --nets resnet18 --batch 128 --methods repar --draws 1 1000 --compile

direct        kl="direct": every draw is a part of the graph
accumulation  M forward passes with one draw each, a backward after each (the paper's Fig. 5)
repar         kl="repar": the draws are inside the statistics; the graph does not grow

Images are 3×32×32, volumes of the 3-D U-Net encoder 1×32×32×32. Memory is the peak of the device; on a CPU it is what
autograd stores (bf.graph_size). A cell takes at most `--budget` seconds: "~" marks a time scaled up from fewer passes.
Below each table stand, beside the paper's claims, repar ÷ direct at the largest M of direct, that which fits under
--memory-cap or else that which ran, and repar ÷ accumulation.
Steps of small batches take as long as the processor needs to launch them: with --capture the repar step is captured as
a CUDA graph, so that its time is the GPU's alone. With --compile it is compiled as well, like the plain network's step
that is printed beside it.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from bayesify.divergences import kl_of
from bayesify.nets import make
from steps import captured
from timing import free, table

NETS = ["resnet18", "densenet121", "vgg16", "unet3d_encoder"]
METHODS = ["direct", "accumulation", "repar"]
Cell = tuple[float, float, str]  # seconds, megabytes, mark


class Bench:
    """One network on one device."""

    def __init__(self, name: str, a: argparse.Namespace) -> None:
        self.a = a
        self.captured = a.device == "cuda" and (a.capture or a.compile)
        self.volume = name == "unet3d_encoder"
        shape = (1, 32, 32, 32) if self.volume else (3, 32, 32)
        torch.manual_seed(0)
        self.net = make(name, num_outputs=10, input_shape=shape).to(a.device)
        self.x = torch.randn(a.batch, *shape, device=a.device)
        self.y = torch.randint(10, (a.batch,), device=a.device)

    def model(self, kl: str, num_draws: int) -> nn.Module:
        method = bf.MonteCarloVI(family=self.a.family, prior=self.a.prior, kl=kl, num_kl_draws=num_draws)
        model = bf.bayesify(copy.deepcopy(self.net), method, num_data=50_000)
        if self.a.compile and kl == "repar":
            model.loss(self.x, self.y)
            return torch.compile(model, dynamic=False)  # type: ignore[return-value]
        return model

    def step(self, method: str, num_draws: int) -> Callable[[int], None]:
        """A function that runs so many passes of a training step; `accumulation` has M of them in a step."""
        model = self.model(
            "direct" if method == "accumulation" else method, 1 if method == "accumulation" else num_draws
        )
        cuda = self.a.device == "cuda"
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=cuda, capturable=cuda)
        share = num_draws if method == "accumulation" else 1

        def run(passes: int) -> None:
            optimizer.zero_grad(set_to_none=True)
            for _ in range(passes):
                (model(self.x, target=self.y).total / share).backward()
            optimizer.step()

        return run

    def cell(self, method: str, num_draws: int) -> Cell | str:
        """Seconds and megabytes of one step, or why there are none."""
        passes = num_draws if method == "accumulation" else 1
        free(self.a.device)
        try:
            run = self.step(method, num_draws)
            if self.captured and method == "repar":
                timing = captured(lambda: run(1))
                return timing.seconds, timing.megabytes, ""
            run(1)  # the first call watches the network and fills caches
            once = self.seconds(lambda: run(1))
            affordable = max(1, min(passes, int(self.a.budget / 2 / once)))
            repeats = max(1, min(20, int(self.a.budget / 2 / (once * affordable))))
            self.reset_peak()
            best = min(self.seconds(lambda: run(affordable)) for _ in range(repeats))
            memory = self.peak() if self.a.device == "cuda" else self.stored(method, num_draws)
        except torch.cuda.OutOfMemoryError:
            return "out of memory"
        finally:
            free(self.a.device)
        return best * passes / affordable, memory, "" if affordable == passes else "~"

    def stored(self, method: str, num_draws: int) -> float:
        """Megabytes that autograd stores for the KL and the network."""
        kl, draws = ("direct", 1) if method == "accumulation" else (method, num_draws)
        model = self.model(kl, draws)
        return 4 * bf.graph_size(lambda: model(self.x, target=self.y).total) / 2**20

    def kl_seconds(self, num_draws: int) -> float:
        """Value and gradient of the repar KL alone."""
        model = self.model("repar", num_draws)
        model = getattr(model, "_orig_mod", model)
        posterior = model.posterior
        qs = list(posterior.distributions(list(posterior.slots)).values())  # type: ignore[union-attr, operator, arg-type]
        prior = bf.prior(self.a.prior)

        def value_and_gradient() -> None:
            total: Tensor = kl_of(qs[0], prior, "repar", num_draws)(qs)
            total.backward()

        if self.captured:
            return captured(value_and_gradient).seconds
        value_and_gradient()
        repeats = max(3, min(50, int(self.a.budget / 2 / self.seconds(value_and_gradient))))
        times = sorted(self.seconds(value_and_gradient) for _ in range(repeats))
        free(self.a.device)
        return times[len(times) // 2]

    def plain_seconds(self) -> float:
        """A step of the network as it is, compiled and captured like the repar step."""
        net = torch.compile(copy.deepcopy(self.net), dynamic=False)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=True)

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(net(self.x), self.y).backward()
            optimizer.step()

        return captured(run).seconds

    def largest(self, cap: float) -> int:
        """The largest M of `direct` within `cap` GB: by trying on a GPU, from the stored numbers on a CPU."""
        if self.a.device != "cuda":
            low, high = (self.stored("direct", m) for m in (1, 3))
            model = self.model("direct", 1)
            fixed = (
                16 * sum(p.numel() for p in model.parameters()) / 2**20
            )  # values, gradients, two Adam states
            return max(0, int(1 + (cap * 1024 - fixed - low) / ((high - low) / 2)))
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap * 2**30 / total))
        try:
            good, bad = 0, 1
            while self.fits(bad):
                good, bad = bad, 2 * bad
            while bad - good > 1:
                middle = (good + bad) // 2
                good, bad = (middle, bad) if self.fits(middle) else (good, middle)
            return good
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    def fits(self, num_draws: int) -> bool:
        try:
            run = self.step("direct", num_draws)
            run(1)
            run(1)
        except torch.cuda.OutOfMemoryError:
            return False
        finally:
            free(self.a.device)
        return True

    def seconds(self, function: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        function()
        self.wait()
        return max(time.perf_counter() - start, 1e-6)

    def wait(self) -> None:
        if self.a.device == "cuda":
            torch.cuda.synchronize()

    def reset_peak(self) -> None:
        if self.a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float:
        return torch.cuda.max_memory_allocated() / 2**20


def report(name: str, a: argparse.Namespace) -> None:
    bench = Bench(name, a)
    cells = {(method, m): bench.cell(method, m) for method in a.methods for m in a.draws}
    rows = []
    for method in a.methods:
        for what, i, unit in (("ms", 0, 1e3), ("MB", 1, 1.0)):
            row = [f"{method}, {what}"]
            for m in a.draws:
                cell = cells[method, m]
                row.append(
                    cell
                    if isinstance(cell, str)
                    else f"{cell[2] if i == 0 else ''}{unit * cell[i]:.{2 if i == 0 else 1}f}"
                )
            first, last = cells[method, a.draws[0]], cells[method, a.draws[-1]]
            missing = isinstance(first, str) or isinstance(last, str)
            row.append("-" if missing else f"{last[i] / first[i]:.3f}")  # type: ignore[operator]
            rows.append(row)
    alone = [bench.kl_seconds(m) for m in a.draws]
    rows.append(["repar, KL alone, ms", *(f"{1e3 * t:.2f}" for t in alone), f"{alone[-1] / alone[0]:.3f}"])
    if a.compile and a.device == "cuda":
        plain = bench.plain_seconds()
        ratios = [cells["repar", m][0] / plain for m in a.draws]  # type: ignore[operator]
        rows.append([f"repar ÷ plain network ({1e3 * plain:.2f} ms)", *(f"{r:.3f}" for r in ratios), ""])
    count = sum(p.numel() for p in bench.net.parameters())
    title = f"{name} ({count / 1e6:.1f} M weights), batch {a.batch}, {a.family} × {a.prior}, {a.device}"
    header = ["training step", *(f"M = {m}" for m in a.draws), "last ÷ first"]
    table(title, rows, header)
    largest = bench.largest(a.memory_cap) if a.memory_cap else None
    if largest is not None:
        where = (
            "tried" if a.device == "cuda" else "from what autograd stores, without the network's workspace"
        )
        print(f"largest M of direct within {a.memory_cap:g} GB ({where}): {largest}", flush=True)
    if a.device == "cuda" and largest and {"direct", "repar"} <= set(a.methods):
        for method in ("direct", "repar"):
            cells[method, largest] = bench.cell(method, largest)
    for line in claims(cells, largest):
        print(line, flush=True)


def claims(cells: dict[tuple[str, int], Cell | str], largest: int | None = None) -> list[str]:
    """The paper's claims and what was measured: repar against direct at its largest M, and against accumulation.

    largest: the M of direct that fits under the memory cap; measured ones beyond it do not count.
    """
    measured = {key: cell for key, cell in cells.items() if not isinstance(cell, str)}

    def last(method: str, bound: float = math.inf) -> int:
        """The largest M at which both the method and repar ran."""
        return max(
            (m for name, m in measured if name == method and ("repar", m) in measured and m <= bound),
            default=0,
        )

    lines = []
    m = last("direct", math.inf if largest is None else largest)
    if m:
        direct, repar = measured["direct", m], measured["repar", m]
        lines += [
            f"repar ÷ direct at M = {m}: time {repar[0] / direct[0]:.3f} (paper: up to 5 times faster, 0.2 at best)",
            f"repar ÷ direct at M = {m}: memory {repar[1] / direct[1]:.3f} (paper: < 0.25)",
        ]
    m = last("accumulation")
    if m:
        ratio = measured["repar", m][0] / measured["accumulation", m][0]
        mark = measured["accumulation", m][2]
        lines.append(
            f"repar ÷ accumulation at M = {m}: time {mark}{ratio:.4f} (paper: up to 14 times faster, 0.071 at best)"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--nets", nargs="+", default=NETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--family", default="normal")
    parser.add_argument("--prior", default="normal")
    parser.add_argument(
        "--memory-cap", type=float, default=0.0, help="GB; 0 leaves the search for the largest M out"
    )
    parser.add_argument("--budget", type=float, default=4.0, help="seconds per cell")
    parser.add_argument("--capture", action="store_true", help="capture the repar step as a CUDA graph")
    parser.add_argument(
        "--compile", action="store_true", help="compile the repar step (Inductor), then capture"
    )
    a = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    for name in a.nets:
        report(name, a)


if __name__ == "__main__":
    main()
