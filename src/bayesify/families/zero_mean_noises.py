"""Zero-mean families with other noises than the normal one: uniform and ±1."""

import math

import torch
from torch import Generator, Tensor

from bayesify.families.base import Start
from bayesify.families.noise import random_signs, standard_uniform, symmetric_expectation
from bayesify.families.zero_mean import ZeroMean
from bayesify.laws.features import Feature

FLOOR = 1e-8  # of a std, far below that of any weight in use


class SmallFloor(ZeroMean):
    """A zero-mean family whose std is that of the centre but for a floor that only keeps its logarithm finite."""

    @classmethod
    def init(cls, like: Tensor) -> Start:  # type: ignore[override]
        return Start({}, {"floor": torch.full((), FLOOR, dtype=like.dtype, device=like.device)})


class ZeroMeanUniform(SmallFloor):
    """w = scale ξ, ξ uniform on (−1, 1); the std is |c|."""

    name = "zero_mean_uniform"
    about = "uniform about zero, its std is what the network holds"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return 2 * standard_uniform((*sample_shape, *self.shape), self.centre, generator) - 1

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return torch.where(noise.abs() <= 1, -math.log(2), -torch.inf).to(noise.dtype)

    def noise_neg_entropy(self) -> float:
        return -math.log(2)

    def expectation(self, feature: Feature) -> float | None:
        return symmetric_expectation(
            feature, lambda p: 1 / (p + 1) if p > -1 else math.inf, lambda: (-1.0, 1.0)
        )


class ZeroMeanBernoulli(SmallFloor):
    """w = ±scale, each sign with probability ½; the std is |c|.

    It has no density: `log_prob` is that of the sign less log scale, so a KL to a density is one up to a constant.
    """

    name = "zero_mean_bernoulli"
    about = "a size with a random sign, its size is what the network holds"

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return random_signs((*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return torch.full_like(noise, -math.log(2))

    def noise_neg_entropy(self) -> float:
        return -math.log(2)

    def expectation(self, feature: Feature) -> float | None:
        return symmetric_expectation(feature, lambda p: 1.0, lambda: (0.0, 0.0))
