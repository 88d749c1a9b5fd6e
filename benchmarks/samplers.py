"""What samplers and `bf.IVON` cost: the update against Adam's, the training step, predictions over stored draws.

    python benchmarks/samplers.py --device cuda
    python benchmarks/samplers.py --device cpu --batch 32
    python benchmarks/samplers.py --device cpu --only warm-start

Update: ResNet-18's parameters with fixed gradients; Adam fused (the better of its forms on a CPU). On CUDA also the
share of the device's copy bandwidth: a step reads θ, g, p, ξ and writes θ, p, ξ once; ivon with its log σ has 8 such.
Step: ResNet-18 on 32x32 images, forward, backward, update; Adam on the plain network with the same prior as penalty
left out, the sampler with its prior, ivon with its draw. Runs of all sides alternate, and the median of their ratios
counts. On CUDA once as it runs, where the processor may hold the GPU up, and once captured: the whole step as one CUDA
graph (but for ivon, whose step `bf.fit` leaves out of its graphs).
Prediction: 20 draws from memory against 20 forward passes.
Warm start: the steps to the first draw of `bf.fit`, with it and without; CPU time of one
core, the least of the rounds. On small networks its looks cost most beside a step: "gradients" are those of looks.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make
from bayesify.samplers import ATMC, SGHMC, SGLD, SGNHT
from bayesify.samplers.variational_newton import VariationalNewton
from sampling_check_nets import net
from steps import capture
from timing import measure, table

NUM_DATA = 50_000
SETTINGS = {"lr": 1e-3, "num_data": NUM_DATA, "mass": 11.1}


def resnet(device: str) -> nn.Module:
    torch.manual_seed(0)
    return make("resnet18", num_outputs=10, input_shape=(3, 32, 32)).to(device)


def updates(device: str) -> None:
    """Seconds of one update, and its ratio to Adam's."""
    parameters = list(resnet(device).parameters())
    for p in parameters:
        p.grad = 1e-4 * torch.randn_like(p)
    adams = [{"fused": True}] if device == "cuda" else [{}, {"foreach": True}, {"fused": True}]
    adam = min(measure(torch.optim.Adam(parameters, lr=0.0, **form).step, device).seconds for form in adams)
    makers: dict[str, Callable[[], Any]] = {
        "atmc": lambda: ATMC(parameters, **SETTINGS),
        "atmc, a mass for every weight": lambda: weighted(ATMC(parameters, **SETTINGS)),
        "atmc, hyperbolic": lambda: ATMC(parameters, max_speed=1.0, **SETTINGS),
        "sgnht": lambda: SGNHT(parameters, **SETTINGS),
        "sghmc": lambda: SGHMC(parameters, **SETTINGS),
        "sgld": lambda: SGLD(parameters, lr=1e-9, num_data=NUM_DATA),
    }
    makers["ivon"] = lambda: newton(parameters)
    if device == "cuda":
        makers["atmc, without the kernel"] = lambda: ATMC(parameters, fused=False, **SETTINGS)
        makers["ivon, without the kernel"] = lambda: newton(parameters, fused=False)
    numel = sum(p.numel() for p in parameters)
    copy = bandwidth(device)
    rows = [["adam", f"{1e3 * adam:.3f}", "1.00", f"{7 * 4 * numel / adam / copy:.0%}"]]
    for name, maker in makers.items():
        seconds = measure(maker().step, device).seconds
        share = f"{7 * 4 * numel / seconds / copy:.0%}" if name.startswith("atmc") else ""
        rows.append([name, f"{1e3 * seconds:.3f}", f"{seconds / adam:.2f}", share])
    table("update of ResNet-18's parameters", rows, ["", "ms", "÷ adam", "of copy bandwidth"])


def newton(parameters: list[nn.Parameter], **options: Any) -> VariationalNewton:
    """All parameters random, with the widths and the gradients of a start."""
    log_stds = [nn.Parameter(torch.full_like(p, -5.0)) for p in parameters]
    for p in log_stds:
        p.grad = 1e-7 * torch.randn_like(p)
    group = {"params": [*parameters, *log_stds], "random": True, "weight_decay": 2e-4}
    return VariationalNewton([group], lr=1e-9, num_data=NUM_DATA, **options)


def weighted(sampler: Any) -> Any:
    """As after a warm start."""
    for p in sampler.param_groups[0]["params"]:
        sampler.state[p]["mass"] = torch.full_like(p, 11.1)
    return sampler


def bandwidth(device: str) -> float:
    """Bytes per second of a copy, read and written."""
    source = torch.randn(2**26, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / measure(lambda: target.copy_(source), device, 0.5).seconds


def steps(device: str, batch: int, compiled: bool, rounds: int) -> None:
    """A whole training step by Adam, ATMC and IVON, alternating; of the first two on a GPU also as one CUDA graph."""
    x = torch.randn(batch, 3, 32, 32, device=device)
    y = torch.arange(batch, device=device) % 10

    def step(optimizer: Any, loss_of: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            optimizer.zero_grad()
            loss_of().backward()
            optimizer.step()

        return run

    plain = resnet(device)
    model = bf.bayesify(resnet(device), bf.ThermostatMCMC(), num_data=NUM_DATA)
    called = torch.compile(plain, dynamic=False) if compiled else plain
    sampled: Any = torch.compile(model, dynamic=False) if compiled else model
    normal = bf.bayesify(resnet(device), bf.IVON(), num_data=NUM_DATA)
    drawn: Any = torch.compile(normal, dynamic=False) if compiled else normal
    for graphs in (False, True) if device == "cuda" else (False,):
        options = {"capturable": True} if graphs else {}
        adam = torch.optim.Adam(plain.parameters(), lr=1e-4, fused=device == "cuda" or None, **options)
        runs = {
            "adam": step(adam, lambda: F.cross_entropy(called(x), y)),
            "atmc": step(
                model.optimizer(lr=1e-4, num_steps=None, **options), lambda: sampled(x, target=y).total
            ),
        }
        if not graphs:
            runs["ivon"] = step(normal.optimizer(lr=1e-4), lambda: drawn(x, target=y).total)
        else:
            runs = {name: capture(run)[0] for name, run in runs.items()}
        title = f"training step, batch {batch}{', compiled' if compiled else ''}"
        compare(title + (", captured" if graphs else ""), runs, device, rounds)


def compare(title: str, runs: dict[str, Callable[[], None]], device: str, rounds: int) -> None:
    """Milliseconds of all runs, and the medians over the rounds of their ratios to Adam's."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(measure(run, device, 3.0 if device == "cpu" else 1.0).seconds)
    rows = [[name, f"{1e3 * statistics.median(values):.2f}"] for name, values in seconds.items()]
    table(title, rows, ["", "ms"])
    for name, values in list(seconds.items())[1:]:
        ratio = statistics.median(b / a for a, b in zip(seconds["adam"], values, strict=True))
        print(f"{name} ÷ adam: {ratio:.3f} (median of {rounds} rounds)")


def prediction(device: str, batch: int) -> None:
    """20 stored draws against 20 forward passes."""
    model = bf.bayesify(resnet(device), bf.ThermostatMCMC(), num_data=NUM_DATA)
    for index in range(20):
        model.posterior.steps = index
        model.collect()
    x = torch.randn(batch, 3, 32, 32, device=device)
    net = model.net.eval()

    @torch.no_grad()
    def twenty() -> None:
        for _ in range(20):
            net(x)

    ours = measure(lambda: model.predict(x, num_draws=20), device, 3.0).seconds
    theirs = measure(twenty, device, 3.0).seconds
    rows = [["20 stored draws", f"{batch / ours:.0f}"], ["20 forward passes", f"{batch / theirs:.0f}"]]
    table(f"prediction, batch {batch}", rows, ["", "images per second"])


def warm_starts(rounds: int) -> None:
    """Of ATMC at temperature 1 on scikit-learn's digits, in batches of 64."""
    rows = []
    for name, epochs in product(("mlp", "cnn"), (30, 120)):
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for with_it in (True, False) * rounds:
            method = bf.ThermostatMCMC(temperature=1.0, warm_start=with_it)
            found = burn_in(name, method, epochs)
            seconds[with_it].append(found[0])
            if with_it:
                steps, looks = found[1:]
        longer, shorter = (min(seconds[with_it]) for with_it in (True, False))
        times = [f"{shorter:.2f}", f"{longer:.2f}", f"{longer / shorter:.2f}"]
        rows.append([name, str(steps), str(looks), *times])
    table("to the first draw", rows, ["", "steps", "gradients", "s without", "s with", "ratio"])


def burn_in(name: str, method: Any, epochs: int) -> tuple[float, int, int]:
    """Seconds and steps to the first draw, and the gradients that were looked at beside those of the steps."""
    data, looks, gradient = load("digits").train, [], torch.autograd.grad
    torch.manual_seed(0)
    model = bf.bayesify(net(name), method, num_data=len(data))
    start, ends = time.process_time(), []
    hook = register_optimizer_step_post_hook(lambda *_: ends.append(time.process_time() - start))
    torch.autograd.grad = lambda *a, **k: looks.append(1) or gradient(*a, **k)  # type: ignore[func-returns-value]
    try:
        loader = Loader(data, 64, shuffle=True)
        bf.fit(model, loader, epochs=epochs, progress=False, seed=0, compile=False, on_bad_sampling="ignore")
    finally:
        torch.autograd.grad = gradient
        hook.remove()
    first = model.posterior.watch.first
    return ends[first - 1], first, len(looks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="compile the networks of the training step")
    parser.add_argument(
        "--only", choices=["updates", "steps", "prediction", "warm-start"], help="one of the tables"
    )
    a = parser.parse_args()
    warnings.filterwarnings("ignore", "batch norm")  # it is about time here, not about the posterior
    if a.only in (None, "updates"):
        updates(a.device)
    if a.only in (None, "steps"):
        steps(a.device, a.batch, a.compile, a.rounds)
    if a.only in (None, "prediction"):
        prediction(a.device, a.batch)
    if a.only in (None, "warm-start"):
        warm_starts(a.rounds)


if __name__ == "__main__":
    main()
