"""Made-up sets in one and two dimensions, for pictures and for tests. Seeded, any size."""

import os
from typing import Annotated

import numpy as np
import torch

from bayesify.checks import NotNegative, NotNegativeCount, Range
from bayesify.data.dataset import DataSet, Split

Size = Annotated[int, Range(least=2, most=10_000_000)]


def two_moons(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    num_train: Size = 200,
    num_test: Size = 200,
    noise_std: NotNegative = 0.1,
    seed: NotNegativeCount = 0,
) -> DataSet:
    """Two interleaved half circles, t ~ U(0, π), ε ~ N(0, noise_std²) on each coordinate.

    class 0: (cos t, sin t) + ε      class 1: (1 − cos t, ½ − sin t) + ε

    num_train, num_test:  number of examples
    noise_std:  standard deviation of ε
    seed:       of the inputs and the noise
    """
    _check(num_train, num_test, noise_std)
    random = np.random.RandomState(seed)

    def draw(num: int) -> Split:
        labels = np.arange(num) % 2
        t = random.uniform(0, np.pi, num)
        x = np.where(labels, 1 - np.cos(t), np.cos(t))
        y = np.where(labels, 0.5 - np.sin(t), np.sin(t))
        points = np.stack([x, y], axis=1) + noise_std * random.standard_normal((num, 2))  # (N, 2)
        return Split(torch.from_numpy(points).float(), torch.from_numpy(labels.astype(np.int64)))

    return DataSet.classification(name, draw(num_train), draw(num_test), ("upper moon", "lower moon"))


def regression_gap(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    num_train: Size = 100,
    num_test: Size = 200,
    noise_std: NotNegative = 0.1,
    seed: NotNegativeCount = 0,
) -> DataSet:
    """y = sin(3x/2) + x/4 + ε on [−4, 4], ε ~ N(0, noise_std²), with no training inputs in (−1, 1.5).

    Training inputs are uniform on the rest; test inputs lie on a grid over all of [−4, 4], so that a
    good posterior is wide in the gap and narrow beside it.

    num_train, num_test:  number of examples
    noise_std:  standard deviation of ε
    seed:       of the inputs and the noise
    """
    _check(num_train, num_test, noise_std)
    random = np.random.RandomState(seed)
    u = random.uniform(0, 5.5, num_train)
    train = np.where(u < 3, u - 4, u - 1.5)  # [−4, −1) and [1.5, 4)

    def observe(x: np.ndarray) -> Split:
        y = np.sin(1.5 * x) + x / 4 + noise_std * random.standard_normal(len(x))
        inputs, targets = (torch.from_numpy(v).float()[:, None] for v in (x, y))  # (N, 1)
        return Split(inputs, targets)

    return DataSet.regression(name, observe(train), observe(np.linspace(-4, 4, num_test)))


def _check(num_train: int, num_test: int, noise_std: float) -> None:
    for argument, value in (("num_train", num_train), ("num_test", num_test)):
        if value < 2:
            raise ValueError(f"{argument}={value!r} must be at least 2")
    if not noise_std >= 0:
        raise ValueError(f"noise_std={noise_std!r} must not be negative")
