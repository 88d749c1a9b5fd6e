"""Images per second of `bf.fit` against a hand-written loop, the data on the device, with and without augmentation.

    python benchmarks/fit_throughput.py --data-root DIR                          # CIFAR-10, read from DIR
    python benchmarks/fit_throughput.py                                          # random bytes of its shape
    python benchmarks/fit_throughput.py --methods point mc_vi vdp                # what a method costs in bf.fit
    python benchmarks/fit_throughput.py --net lenet --batches 3 --no-compile     # does it run? (seconds, on a CPU)

Both sides compile once, crop and flip by the same function, and count their fastest epoch after the first.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import DataSet, Loader, Split, load
from bayesify.data.augment import crop_flip, draw_choices
from bayesify.nets import make
from timing import table

METHODS: dict[str, Callable[[], bf.methods.Method]] = {
    "point": bf.Point,
    "mc_vi": bf.MonteCarloVI,
    "emp": bf.EnsemblePatching,
    "vdp": bf.DensityPropagation,
    "vdp++": lambda: bf.DensityPropagation(covariance="diagonal"),
    "variance": bf.VarianceNetwork,
}
AUGMENTS = {"none": "no augmentation", "crop_flip": "crop and flip"}
Seconds = dict[str, float]  # of an epoch, by augmentation


def images(arguments: argparse.Namespace) -> DataSet:
    """CIFAR-10 or random images, as many as are trained on in an epoch: whole batches."""
    wanted = None if arguments.batches is None else arguments.batches * arguments.batch
    if arguments.data_root:
        data = load("cifar10", arguments.data_root)
        train, names = data.train, data.class_names or ()
    else:
        num = 50_000 if wanted is None else wanted
        x = torch.randint(256, (num, 3, 32, 32), dtype=torch.uint8)
        train, names = Split(x, torch.arange(num) % 10), [str(i) for i in range(10)]
    num = min(len(train) if wanted is None else wanted, len(train))
    part = train.take(torch.arange(num // arguments.batch * arguments.batch))
    return DataSet.classification("cifar10", part, part, names)


def network(arguments: argparse.Namespace) -> nn.Module:
    torch.manual_seed(0)
    return make(arguments.net, num_outputs=10, input_shape=(3, 32, 32)).to(arguments.device)


def sgd(arguments: argparse.Namespace) -> Callable[..., torch.optim.Optimizer]:
    fused = arguments.device == "cuda"
    return lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=fused)


def by_hand(arguments: argparse.Namespace, data: DataSet) -> Seconds:
    """A plain loop, compiled as fit compiles: shuffle, augment, normalise, step."""
    device = arguments.device
    net = network(arguments)
    mode = "reduce-overhead" if device == "cuda" else None
    called = torch.compile(net, mode=mode, dynamic=False) if arguments.compile else net
    optimizer = sgd(arguments)(net.parameters())
    assert isinstance(data.train.inputs, Tensor)
    x, y = data.train.inputs.to(device), data.train.targets.to(device)
    mean = 255 * data.normalisation.mean.float().to(device).view(-1, 1, 1)
    std = 255 * data.normalisation.std.float().to(device).view(-1, 1, 1)
    generator = torch.Generator(device).manual_seed(0)

    def epoch(augment: str) -> float:
        start = time.perf_counter()
        for index in torch.randperm(len(x), device=device).split(arguments.batch):
            batch = x[index]
            if augment == "crop_flip":
                batch = crop_flip(batch, draw_choices(len(batch), generator))
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=arguments.precision == "bf16-mixed"):
                loss = F.cross_entropy(called((batch.float() - mean) / std), y[index])
            loss.backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return {
        augment: fastest([epoch(augment) for _ in range(arguments.epochs)]) for augment in arguments.augments
    }


def by_fit(arguments: argparse.Namespace, data: DataSet, method: bf.methods.Method) -> Seconds:
    """`bf.fit` on one model, so that the second call finds it compiled."""
    model = bf.bayesify(network(arguments), method)

    def epochs(augment: str) -> list[float]:
        options = {"device": arguments.device, "normalise": data.normalisation, "augment": augment}
        history = bf.fit(
            model,
            Loader(data.train, arguments.batch, shuffle=True, **options),
            epochs=arguments.epochs,
            optimizer=sgd(arguments),
            precision=arguments.precision,
            compile=arguments.compile,
            accelerator="gpu" if arguments.device == "cuda" else "cpu",
        )
        return history.column("seconds")

    return {augment: fastest(epochs(augment)) for augment in arguments.augments}


def fastest(seconds: list[float]) -> float:
    return min(seconds[1:])  # the first one compiles


def rows(name: str, seconds: Seconds, hand: Seconds, count: int) -> list[list[str]]:
    return [
        [f"{name}, {AUGMENTS[a]}", f"{count / s:,.0f}", f"{hand[a] / s:.3f}", f"{60 / s:.1f}"]
        for a, s in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-root", help="a folder that holds CIFAR-10")
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, help="batches in an epoch (all)")
    parser.add_argument("--epochs", type=int, default=3, help="of each run, at least 2 (%(default)s)")
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], default="32-true")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["point"], help="of bf.fit")
    parser.add_argument("--augments", nargs="+", choices=list(AUGMENTS), default=list(AUGMENTS))
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error("--epochs must be at least 2: the first one compiles")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    began = time.perf_counter()
    data = images(arguments)
    count = len(data.train)
    hand = by_hand(arguments, data)
    found = rows("hand-written loop", hand, hand, count)
    for name in arguments.methods:
        found += rows(f"bf.fit, {name}", by_fit(arguments, data, METHODS[name]()), hand, count)
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    source = "CIFAR-10" if arguments.data_root else "random images"
    title = f"{arguments.net} on {count:,} images ({source}), batch {arguments.batch}, {arguments.precision}"
    table(
        f"{title}, {device}, torch {torch.__version__}", found, ["", "images/s", "of by hand", "epochs/min"]
    )
    print(f"took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
