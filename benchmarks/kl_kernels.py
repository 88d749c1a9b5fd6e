"""Σ ξ and Σ ξ² over M draws of base noise: the library's fast path against a plain loop over draws.

    python benchmarks/kl_kernels.py
    python benchmarks/kl_kernels.py --device cpu --net lenet --numel 100000 --draws 20 --budget 0.1

fast   `bayesify.kernels.noise_sums`: a fused Triton kernel on CUDA, large chunks on a CPU
loop   one draw at a time: noise by torch's kernels (randn, rand), added to both sums
randn  one torch.randn per draw and nothing else: what making the numbers alone costs

"tensors" are all parameters of the network, one after the other; "one" is one tensor of `--numel` entries. The time of
loop and randn is linear in M, so at most 20 draws are timed and scaled.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from bayesify.kernels import LAWS, noise_sums
from bayesify.kernels.sums import draw_noise
from bayesify.nets import make
from timing import measure, table

TIMED_DRAWS = 20


def fast(law: str, tensors: list[Tensor], num_draws: int) -> None:
    for tensor in tensors:
        noise_sums(law, tensor, num_draws)


def loop(law: str, tensors: list[Tensor], num_draws: int) -> None:
    for tensor in tensors:
        first, second = torch.zeros_like(tensor), torch.zeros_like(tensor)
        for _ in range(num_draws):
            noise = draw_noise(law, (1, *tensor.shape), tensor, None)[0]
            first.add_(noise)
            second.addcmul_(noise, noise)


def randn(law: str, tensors: list[Tensor], num_draws: int) -> None:
    for tensor in tensors:
        for _ in range(num_draws):
            torch.randn_like(tensor)


def seconds(function: Callable[..., None], law: str, tensors: list[Tensor], a: argparse.Namespace) -> float:
    timed = a.draws if function is fast else min(a.draws, TIMED_DRAWS)
    return measure(lambda: function(law, tensors, timed), a.device, a.budget).seconds * a.draws / timed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--numel", type=int, default=11_000_000, help="entries of the one large tensor")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds per measurement")
    a = parser.parse_args()
    net = make(a.net, num_outputs=10, input_shape=(3, 32, 32)).to(a.device)
    cases = {
        f"{a.net}, tensors": [p.detach() for p in net.parameters()],
        "one": [torch.empty(a.numel, device=a.device)],
    }
    for name, tensors in cases.items():
        rows = []
        for law in LAWS:
            times = [seconds(function, law, tensors, a) for function in (fast, loop, randn)]
            ratios = [times[0] / times[1], times[0] / times[2]]
            rows.append([law, *(f"{1e3 * t:.2f}" for t in times), *(f"{ratio:.4f}" for ratio in ratios)])
        count = sum(tensor.numel() for tensor in tensors)
        title = f"{name}: {len(tensors)} of {count / 1e6:.2f} M entries, {a.draws} draws, {a.device}"
        table(title, rows, ["law", "fast, ms", "loop, ms", "randn, ms", "fast ÷ loop", "fast ÷ randn"])


if __name__ == "__main__":
    main()
