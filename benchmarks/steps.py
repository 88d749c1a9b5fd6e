"""A training step of each method divided by the plain network's step, and predictions over 20 draws.

    python benchmarks/steps.py --device cuda
    python benchmarks/steps.py --device cpu --batch 32 --modes eager
    python benchmarks/steps.py --modes eager graphs --methods "mc_vi, draw"
    python benchmarks/steps.py --methods vdp++ --net vit_s16 --size 224 --batch 64 --only training
    python benchmarks/steps.py --methods vdp++ --net lenet --channels 1 --size 28 --batch 512 --only training

Both sides of a ratio run at the same precision; for each side the best of the modes counts: eager,
compiled (Inductor), graphs (Inductor, forward and backward replayed as CUDA graphs), captured (Inductor, the whole
step with its optimiser, or the whole prediction, captured as one CUDA graph: what the GPU needs, whatever the
processor beside it does). For predictions, compiled and graphs are both predict(compile=True).
"""

import argparse
import copy
import sys
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
from bayesify.methods import Method
from bayesify.nets import make
from bayesify.posteriors import Call
from bayesify.predict.accumulation import Statistics, statistics
from bayesify.predict.compiled import at_once
from bayesify.predict.prediction import _chunk
from timing import Timing, free, measure, table

VDP = partial(bf.DensityPropagation, covariance="diagonal")
METHODS: dict[str, Callable[[], Method]] = {
    "mc_vi, draw": lambda: bf.MonteCarloVI(),
    "mc_vi, local": lambda: bf.MonteCarloVI(sampling="local"),
    "mc_vi, flipout": lambda: bf.MonteCarloVI(sampling="flipout"),
    "vdp": lambda: bf.DensityPropagation(),
    "vdp++": lambda: VDP(),
    "vdp++, first order": lambda: VDP(activation="first_order"),
    "vdp++, full variance": lambda: VDP(half_variance=False),
    "vdp++, half variance": lambda: VDP(half_variance=True),
    "vdp++, per row": lambda: VDP(variance="row"),
}
DRAWS = 20
MODES = ["eager", "compiled", "graphs", "captured"]


def in_mode(module: nn.Module, mode: str) -> nn.Module:
    torch._dynamo.reset()
    if mode == "eager":
        return module
    return torch.compile(module, mode="reduce-overhead" if mode == "graphs" else None, dynamic=False)


def best(variants: dict[str, Timing]) -> tuple[str, Timing]:
    name = min(variants, key=lambda n: variants[n].seconds)
    return name, variants[name]


def autocast(a: argparse.Namespace) -> torch.autocast:
    return torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16")


def training_step(
    a: argparse.Namespace, module: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor], mode: str
) -> Timing:
    """One mode of one module. What earlier ones left on the device is freed first: memory is the whole peak."""
    called = in_mode(module, mode)
    module.zero_grad(set_to_none=True)
    free(a.device)
    cuda = a.device == "cuda"
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=cuda, capturable=mode == "captured")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(a):
            loss = loss_of(called)
        loss.backward()
        optimizer.step()

    timing = captured(step) if mode == "captured" else measure(step, a.device)
    print(f"... {type(module).__name__}, {mode}: {1e3 * timing.seconds:.2f} ms", file=sys.stderr, flush=True)
    return timing


def captured(step: Callable[[], None]) -> Timing:
    """The time of the step as one CUDA graph; the peak of the memory is that of the steps before it was captured."""
    replay, peak = capture(step)
    return Timing(measure(replay, "cuda").seconds, peak)


def capture(step: Callable[[], None]) -> tuple[Callable[[], None], float]:
    """The step as one CUDA graph, and the peak of the memory before."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        peak = measure(step, "cuda", budget=0.1).megabytes
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay, peak


def time_training(
    a: argparse.Namespace,
    net: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    methods: Mapping[str, Callable[[], Method]],
) -> None:
    def timed(module: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor]) -> dict[str, Timing]:
        return {mode: training_step(a, module, loss_of, mode) for mode in a.modes}

    variants = timed(copy.deepcopy(net).to(a.device), lambda n: F.cross_entropy(n(x), y))
    base_mode, base = best(variants)
    rows = [["plain network", *_cells(variants, base, base), base_mode]]
    for name in a.methods:
        model = bf.bayesify(copy.deepcopy(net).to(a.device), methods[name](), num_data=50_000)
        variants = timed(model, lambda n: n(x, target=y).total)
        del model
        mode, chosen = best(variants)
        rows.append([name, *_cells(variants, chosen, base), mode])
    header = ["training step", *(f"{m} ms" for m in a.modes), "ratio", "memory ratio", "best"]
    table(f"{a.net}, batch {a.batch}, {a.precision}, {a.device}", rows, header)


def _cells(variants: dict[str, Timing], chosen: Timing, base: Timing) -> list[str]:
    memory = f"{chosen.megabytes / base.megabytes:.2f}" if base.megabytes else "-"
    times = [f"{1e3 * t.seconds:.2f}" for t in variants.values()]
    return [*times, f"{chosen.seconds / base.seconds:.3f}", memory]


def time_prediction(a: argparse.Namespace, net: nn.Module, x: torch.Tensor) -> None:
    rows = []
    for batch in (1, a.batch):
        part = x[:batch].contiguous()
        model = bf.bayesify(copy.deepcopy(net).to(a.device), bf.MonteCarloVI(), num_data=50_000)
        base_mode, base = plain_forward(a, net, part)
        for way, timed in ways(a).items():
            seconds = timed(a, model, part).seconds
            plain = f"{1e3 * base.seconds:.2f} ({base_mode})"
            row = [f"batch {batch}, {way}", f"{1e3 * seconds:.2f}", plain, f"{seconds / base.seconds:.2f}"]
            print("...", *row, file=sys.stderr, flush=True)
            rows.append(row)
    table(f"predict, {DRAWS} draws", rows, ["", "ms", "one plain forward ms", "ratio"])


Way = Callable[[argparse.Namespace, bf.BayesianModule, torch.Tensor], Timing]


def ways(a: argparse.Namespace, **options: bool) -> dict[str, Way]:
    """The ways to predict that the modes ask for."""
    asked: dict[str, Way] = {}
    if "eager" in a.modes:
        asked["eager"] = partial(prediction, **options)
    if {"compiled", "graphs"} & set(a.modes):
        asked["compiled"] = partial(prediction, compile=True, **options)
    if "captured" in a.modes:
        asked["captured"] = partial(captured_prediction, **options)
    return asked


def plain_forward(a: argparse.Namespace, net: nn.Module, x: torch.Tensor) -> tuple[str, Timing]:
    """The plain network's forward in its best mode."""

    def timed(mode: str) -> Timing:
        called = in_mode(copy.deepcopy(net).to(a.device).eval(), mode)

        def forward() -> None:
            with torch.no_grad(), autocast(a):
                called(x)

        return captured(forward) if mode == "captured" else measure(forward, a.device)

    return best({mode: timed(mode) for mode in a.modes})


def prediction(a: argparse.Namespace, model: bf.BayesianModule, x: torch.Tensor, **options: bool) -> Timing:
    torch._dynamo.reset()

    def predict() -> None:
        with autocast(a):
            model.predict(x, DRAWS, **options)

    return measure(predict, a.device)


def captured_prediction(
    a: argparse.Namespace, model: bf.BayesianModule, x: torch.Tensor, batched: bool | None = None
) -> Timing:
    return captured(whole_prediction(a, model, x, batched))


def whole_prediction(
    a: argparse.Namespace, model: bf.BayesianModule, x: torch.Tensor, batched: bool | None = None
) -> Callable[[], Statistics]:
    """What predict(compile=True) computes on the device: draws, passes and their statistics."""
    torch._dynamo.reset()
    model.eval()
    n = _chunk(model, Call((x,), {}), DRAWS, batched, compiled=True)
    function = torch.compile(at_once(model, 0, n), dynamic=False)

    def predict() -> Statistics:
        with torch.no_grad(), autocast(a):
            outputs = [function((x,), {}, None) for _ in range(0, DRAWS, n)]
            return statistics(model.likelihood, torch.cat(outputs))

    return predict


def arguments(
    about: str | None, methods: Mapping[str, object], default: list[str]
) -> argparse.ArgumentParser:
    """The options of a benchmark of steps."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES if cuda else MODES[:2])
    parser.add_argument("--methods", nargs="+", choices=list(methods), default=default)
    parser.add_argument("--only", choices=["training", "prediction"], help="one of the two tables")
    return parser


def prepare(a: argparse.Namespace) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The plain network, on the CPU, and a batch on the device."""
    if "captured" in a.modes and not a.device.startswith("cuda"):
        raise SystemExit(f"--modes captured makes CUDA graphs, which --device {a.device} does not have")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    net = make(a.net, num_outputs=10, input_shape=(a.channels, a.size, a.size))
    x = torch.randn(a.batch, a.channels, a.size, a.size, device=a.device)
    return net, x, torch.randint(10, (a.batch,), device=a.device)


def main() -> None:
    a = arguments(__doc__, METHODS, list(METHODS)).parse_args()
    net, x, y = prepare(a)
    if a.only != "prediction":
        time_training(a, net, x, y, METHODS)
    if a.only != "training":
        time_prediction(a, net, x)


if __name__ == "__main__":
    main()
