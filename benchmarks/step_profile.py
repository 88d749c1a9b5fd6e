"""Where the time of a training step goes on a GPU: its kernels by name, beside the plain network's.

    python benchmarks/step_profile.py --methods "mc_vi, draw" vdp++ emp
    python benchmarks/step_profile.py --net vit_s16 --size 224 --batch 64 --methods vdp++ --top 20

Kernels are summed over a step of the compiled network (Inductor) and its optimiser; "busy" is their sum, without the
gaps between them. Methods are those of steps.py and patching.py.
"""

import argparse
import copy
from collections import Counter
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import bayesify as bf
import patching
import steps
from bayesify.nets import make
from timing import table

METHODS = {**steps.METHODS, **patching.METHODS}
STEPS = 5


def kernels(step: Callable[[], None]) -> tuple[Counter[str], Counter[str]]:
    """Microseconds and launches of every kernel, per step."""
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    times: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name] += event.device_time_total / STEPS
            launches[event.name] += 1
    return times, launches


def show(title: str, step: Callable[[], None], top: int) -> None:
    times, launches = kernels(step)
    total = sum(times.values())
    rows = [
        [name[:90], f"{launches[name] / STEPS:.0f}", f"{us:.0f}", f"{us / total:.1%}"]
        for name, us in times.most_common(top)
    ]
    count = sum(launches.values()) / STEPS
    table(
        f"{title}: {total / 1e3:.2f} ms busy, {count:.0f} kernels",
        rows,
        ["kernel", "launches", "µs", "share"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--mode", choices=["eager", "compiled"], default="compiled")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["mc_vi, draw", "vdp++"])
    parser.add_argument("--top", type=int, default=15, help="kernels to print")
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    net = make(a.net, num_outputs=10, input_shape=(3, a.size, a.size)).cuda()
    x = torch.randn(a.batch, 3, a.size, a.size, device="cuda")
    y = torch.randint(10, (a.batch,), device="cuda")
    for name in ["plain", *a.methods]:
        module = copy.deepcopy(net)
        if name != "plain":
            module = bf.bayesify(module, METHODS[name](), num_data=50_000)
        called = steps.in_mode(module, a.mode)
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=True)

        def step(called=called, optimizer=optimizer, plain=name == "plain") -> None:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(called(x), y) if plain else called(x, target=y).total
            loss.backward()
            optimizer.step()

        show(name, step, a.top)


if __name__ == "__main__":
    main()
