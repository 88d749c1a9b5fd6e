"""A small network to patch."""

from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 5)
    )


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(16, 3, 8, 8), torch.randint(5, (16,))


def patched(**options: Any) -> bf.BayesianModule:
    return bf.bayesify(small_cnn(), bf.EnsemblePatching(**options), num_data=64)
