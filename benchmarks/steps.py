"""A training step of each method divided by the plain network's step, and predictions over draws.

    python benchmarks/steps.py --device cuda --net resnet18 --batch 128
    python benchmarks/steps.py --device cpu --batch 32

Both sides of a ratio run at the same precision; for each the better of eager and compiled counts.
"""

import argparse
import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import bayesify as bf
from bayesify.nets import make
from timing import Timing, measure, table

METHODS: dict[str, Callable[[], bf.methods.Method]] = {
    "mc_vi, draw": lambda: bf.MonteCarloVI(),
    "mc_vi, local": lambda: bf.MonteCarloVI(sampling="local"),
    "mc_vi, flipout": lambda: bf.MonteCarloVI(sampling="flipout"),
}


def training_step(
    loss: Callable[[], torch.Tensor], parameters: list[nn.Parameter], fused: bool
) -> Callable[[], None]:
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def best(variants: dict[str, Timing]) -> tuple[str, Timing]:
    name = min(variants, key=lambda n: variants[n].seconds)
    return name, variants[name]


def autocast(arguments: argparse.Namespace) -> torch.autocast:
    return torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "bf16")


def time_training(arguments: argparse.Namespace, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    fused = arguments.device == "cuda"
    modes = ["eager", "compiled"] if arguments.compile else ["eager"]

    def timings(module: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor]) -> dict[str, Timing]:
        result = {}
        for mode in modes:
            torch._dynamo.reset()
            called = torch.compile(module) if mode == "compiled" else module

            def loss(called: nn.Module = called) -> torch.Tensor:
                with autocast(arguments):
                    return loss_of(called)

            result[mode] = measure(training_step(loss, list(module.parameters()), fused), arguments.device)
        return result

    plain = timings(copy.deepcopy(net), lambda m: F.cross_entropy(m(x), y))
    base_mode, base = best(plain)
    rows = [["plain network", *_cells(plain, base, base), base_mode]]
    for name, method in METHODS.items():
        model = bf.bayesify(copy.deepcopy(net), method(), num_data=50_000)
        variants = timings(model, lambda m: m(x, target=y).total)
        mode, chosen = best(variants)
        rows.append([name, *_cells(variants, chosen, base), mode])
    header = ["training step", *(f"{m} ms" for m in modes), "ratio", "memory ratio", "better"]
    table(
        f"{arguments.net}, batch {arguments.batch}, {arguments.precision}, {arguments.device}", rows, header
    )


def _cells(variants: dict[str, Timing], chosen: Timing, base: Timing) -> list[str]:
    memory = f"{chosen.megabytes / base.megabytes:.2f}" if base.megabytes else "-"
    return [
        *(f"{1e3 * t.seconds:.2f}" for t in variants.values()),
        f"{chosen.seconds / base.seconds:.3f}",
        memory,
    ]


def time_prediction(arguments: argparse.Namespace, net: nn.Module, x: torch.Tensor) -> None:
    rows = []
    for batch in (1, arguments.batch):
        part = x[:batch]
        plain = copy.deepcopy(net).eval()
        model = bf.bayesify(copy.deepcopy(net), bf.MonteCarloVI(), num_data=50_000)

        def forward(module: nn.Module = plain, part: torch.Tensor = part) -> None:
            with torch.no_grad(), autocast(arguments):
                module(part)

        once = {"eager": measure(forward, arguments.device)}
        if arguments.compile:
            torch._dynamo.reset()
            compiled = torch.compile(plain)
            once["compiled"] = measure(lambda m=compiled, f=forward: f(m), arguments.device)
        base = best(once)[1]
        for way in ("chosen", "looped", "batched"):
            batched = {"chosen": None, "looped": False, "batched": True}[way]

            def predict(
                model: bf.BayesianModule = model, part: torch.Tensor = part, b: bool | None = batched
            ) -> None:
                with autocast(arguments):
                    model.predict(part, 20, batched=b)

            if way == "batched" and batch > 16:
                continue
            t = measure(predict, arguments.device)
            rows.append(
                [
                    f"batch {batch}, {way}",
                    f"{1e3 * t.seconds:.2f}",
                    f"{1e3 * base.seconds:.2f}",
                    f"{t.seconds / base.seconds:.2f}",
                ]
            )
    table("predict, 20 draws", rows, ["", "ms", "one plain forward ms", "ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    net = make(arguments.net, num_outputs=10, input_shape=(3, arguments.size, arguments.size)).to(
        arguments.device
    )
    x = torch.randn(arguments.batch, 3, arguments.size, arguments.size, device=arguments.device)
    y = torch.randint(10, (arguments.batch,), device=arguments.device)
    time_training(arguments, net, x, y)
    time_prediction(arguments, net, x)


if __name__ == "__main__":
    main()
