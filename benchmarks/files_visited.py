"""Files of the package that one thought passes through: the second `loss` and the second `predict` of each method.

    python benchmarks/files_visited.py [--names]

A file counts when one of its functions runs. The first call of each kind is left out: it observes the network and
fills caches. With --names the files themselves are printed.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayesify as bf
from bayesify.methods import METHODS

PACKAGE = Path(bf.__file__).parent


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 3)
    )


def visited(call: Callable[[], object]) -> list[str]:
    """Files of the package with a function that `call` runs."""
    found: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    inside = (Path(name) for name in found if name.startswith(str(PACKAGE)))
    return sorted(str(path.relative_to(PACKAGE)) for path in inside)


def files_of(name: str) -> tuple[list[str], list[str]]:
    """Of the second loss and of the second prediction of the method called `name`."""
    x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
    model = bf.bayesify(make_net(), name, num_data=8)
    model.loss(x, y).total.backward()
    loss = visited(lambda: model.loss(x, y).total.backward())
    if hasattr(model.posterior, "collect"):
        for _ in range(2):
            try:
                model.collect()
            except (TypeError, ValueError):
                break
    model.predict(x)
    return loss, visited(lambda: model.predict(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the files, not only how many")
    names = parser.parse_args().names
    warnings.simplefilter("ignore")
    print(f"{'method':<16}{'loss':>6}{'predict':>9}")
    for name in METHODS:
        loss, predict = files_of(name)
        print(f"{name:<16}{len(loss):>6}{len(predict):>9}")
        if names:
            print("  loss     " + " ".join(loss) + "\n  predict  " + " ".join(predict))


if __name__ == "__main__":
    main()
