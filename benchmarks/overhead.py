"""What each method adds to a small network on one CPU core: a prediction of one example with nothing set, divided by
a plain forward, and an eager training step, divided by the plain step.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --nets resnet20 --only training --batch 32

Times are CPU seconds of the thread, the least of several turns in which both sides alternate, so that other work
on the machine counts little; give OMP_NUM_THREADS=1, or what other threads do is left out. "ops" are operations that
torch dispatches, which depend on no machine.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesify as bf
from bayesify.methods import Method
from bayesify.nets import make
from timing import table

VDP = bf.DensityPropagation
METHODS: dict[str, Callable[[], Method]] = {
    "point": bf.Point,
    "mc_vi": bf.MonteCarloVI,
    "local": lambda: bf.MonteCarloVI(sampling="local"),
    "emp": bf.EnsemblePatching,
    "variance": bf.VarianceNetwork,
    "vdp": VDP,
    "vdp, diagonal": lambda: VDP(covariance="diagonal", logits="bound"),
    "ensemble of 5": lambda: bf.DeepEnsemble(num_members=5),
}
PREDICTIONS, STEPS = (
    list(METHODS),
    [name for name in METHODS if name not in ("point", "vdp", "ensemble of 5")],
)
TURNS = 15
SECONDS = 0.02  # of one turn, at least

Run = Callable[[], object]


def cnn() -> nn.Module:
    """Two convolutions with batch norm, 9,160 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (cnn, (1, 28, 28)),
    "mlp": (lambda: make("mlp", num_outputs=10, input_shape=(64,), hidden=(64, 64)), (64,)),
    "lenet_small": (lambda: make("lenet_small", num_outputs=10, input_shape=(1, 28, 28)), (1, 28, 28)),
    "lenet": (lambda: make("lenet", num_outputs=10, input_shape=(1, 28, 28)), (1, 28, 28)),
    "resnet20": (lambda: make("resnet20", num_outputs=10, input_shape=(3, 32, 32)), (3, 32, 32)),
}


class Count(TorchDispatchMode):
    """Counts the operations inside."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(run: Run) -> int:
    with Count() as seen:
        run()
    return seen.count


def in_turns(*runs: Run) -> list[float]:
    """CPU seconds of a call of each, the least of TURNS turns."""
    calls = []
    for run in runs:
        for _ in range(3):
            run()
        start = time.thread_time()
        run()
        calls.append(max(1, int(SECONDS / max(time.thread_time() - start, 1e-6))))
    least = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for i, run in enumerate(runs):
            start = time.thread_time()
            for _ in range(calls[i]):
                run()
            least[i] = min(least[i], (time.thread_time() - start) / calls[i])
    return least


def prediction(net: nn.Module, method: Method | None, x: torch.Tensor) -> Run:
    if method is not None:
        model = bf.bayesify(net, method, num_data=1000)
        return lambda: model.predict(x)
    net.eval()

    def forward() -> None:
        with torch.no_grad():
            net(x)

    return forward


def step(net: nn.Module, method: Method | None, x: torch.Tensor, y: torch.Tensor) -> Run:
    module = net if method is None else bf.bayesify(net, method, num_data=1000)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), y) if method is None else module.loss(x, y).total
        loss.backward()
        optimizer.step()

    return run


def compare(title: str, a: argparse.Namespace, chosen: list[str], make_run: Callable[..., Run]) -> None:
    rows = []
    for net_name in a.nets:
        net = NETS[net_name][0]()
        plain = make_run(net_name, copy.deepcopy(net), None)
        for name in chosen:
            run = make_run(net_name, copy.deepcopy(net), METHODS[name]())
            base, mine = in_turns(plain, run)
            ops = f"{operations(run)} / {operations(plain)}"
            row = [f"{net_name}, {name}", f"{1e6 * mine:.0f}", f"{1e6 * base:.0f}", f"{mine / base:.2f}", ops]
            print("...", *row, file=sys.stderr, flush=True)
            rows.append(row)
    table(title, rows, ["", "µs", "plain µs", "ratio", "ops"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nets", nargs="+", choices=list(NETS), default=["cnn", "mlp", "lenet_small", "lenet"]
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS))
    parser.add_argument("--batch", type=int, default=64, help="examples of a training step")
    parser.add_argument("--only", choices=["training", "prediction"], help="one of the two tables")
    a = parser.parse_args()
    torch.manual_seed(0)
    about = f"CPU, float32, torch {torch.__version__}, {torch.get_num_threads()} thread(s)"

    def predicts(net_name: str, net: nn.Module, method: Method | None) -> Run:
        return prediction(net, method, torch.randn(1, *NETS[net_name][1]))

    def trains(net_name: str, net: nn.Module, method: Method | None) -> Run:
        x, y = torch.randn(a.batch, *NETS[net_name][1]), torch.randint(10, (a.batch,))
        return step(net, method, x, y)

    if a.only != "training":
        compare(f"predict of one example ÷ a forward, {about}", a, a.methods or PREDICTIONS, predicts)
    if a.only != "prediction":
        compare(f"training step, batch {a.batch}, {about}", a, a.methods or STEPS, trains)


if __name__ == "__main__":
    main()
