"""Images per second of `bf.fit` against a hand-written loop, the data on the device.

    python benchmarks/fit_throughput.py --device cuda [--data-root DIR]

Without --data-root the images are random bytes of CIFAR-10's shape: the speed is the same.
"""

import argparse
import time

import torch
import torch.nn.functional as F

import bayesify as bf
from bayesify.data import DataSet, Loader, Split, load
from bayesify.nets import make
from timing import table


def images(arguments: argparse.Namespace) -> DataSet:
    if arguments.data_root:
        return load("cifar10", arguments.data_root)
    x = torch.randint(256, (arguments.num_images, 3, 32, 32), dtype=torch.uint8)
    y = torch.randint(10, (arguments.num_images,))
    part = Split(x, y)
    return DataSet.classification("random", part, Split(x[:100], y[:100]), [str(i) for i in range(10)])


def by_hand(arguments: argparse.Namespace, data: DataSet) -> float:
    """Seconds of the last epoch of a plain loop, compiled as fit does: shuffle, normalise, step of fused SGD."""
    device = arguments.device
    torch.manual_seed(0)
    net = make("resnet18", num_outputs=10, input_shape=(3, 32, 32)).to(device)
    assert isinstance(data.train.inputs, torch.Tensor)
    x, y = data.train.inputs.to(device), data.train.targets.to(device)
    mean = data.normalisation.mean.float().to(device).view(1, -1, 1, 1)
    std = data.normalisation.std.float().to(device).view(1, -1, 1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, fused=device == "cuda")
    mode = "reduce-overhead" if device == "cuda" else None
    called = torch.compile(net, mode=mode, dynamic=False) if arguments.compile else net
    for _ in range(arguments.epochs):
        start = time.perf_counter()
        order = torch.randperm(len(x), device=device)
        for i in range(0, len(x) - arguments.batch + 1, arguments.batch):
            index = order[i : i + arguments.batch]
            batch = (x[index].float() - mean) / std
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=arguments.precision == "bf16-mixed"):
                loss = F.cross_entropy(called(batch), y[index])
            loss.backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds


def by_fit(arguments: argparse.Namespace, data: DataSet, augment: str, method: bf.methods.Method) -> float:
    """Seconds of the last epoch of `bf.fit`."""
    torch.manual_seed(0)
    net = make("resnet18", num_outputs=10, input_shape=(3, 32, 32)).to(arguments.device)
    loader = Loader(
        data.train,
        arguments.batch,
        shuffle=True,
        device=arguments.device,
        normalise=data.normalisation,
        augment=augment,
        drop_last=True,
    )
    history = bf.fit(
        bf.bayesify(net, method),
        loader,
        epochs=arguments.epochs,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=arguments.device == "cuda"),
        precision=arguments.precision,
        compile=arguments.compile,
        accelerator="gpu" if arguments.device == "cuda" else "cpu",
    )
    return history[-1]["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-root")
    parser.add_argument("--num-images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], default="32-true")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    data = images(arguments)
    count = len(data.train) // arguments.batch * arguments.batch
    hand = by_hand(arguments, data)
    rows = [["hand-written loop", f"{count / hand:,.0f}", "1.000", f"{60 / hand:.1f}"]]
    for name, augment, method in (
        ("bf.fit, plain network", "none", bf.Point()),
        ("bf.fit, plain network, crop and flip", "crop_flip", bf.Point()),
        ("bf.fit, Monte-Carlo VI, crop and flip", "crop_flip", bf.MonteCarloVI()),
    ):
        torch._dynamo.reset()
        seconds = by_fit(arguments, data, augment, method)
        rows.append([name, f"{count / seconds:,.0f}", f"{hand / seconds:.3f}", f"{60 / seconds:.1f}"])
    title = f"ResNet-18, batch {arguments.batch}, {arguments.precision}, {arguments.device}"
    table(title, rows, ["", "images/s", "of the hand-written loop", "epochs/min"])


if __name__ == "__main__":
    main()
