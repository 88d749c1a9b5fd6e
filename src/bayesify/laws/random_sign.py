"""The law of a random sign."""

import math

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, random_signs


class RandomSign(Law):
    """ξ = ±1, each with probability ½. It has no density: `log_prob` is the logarithm of the probability, −log 2."""

    symmetric = True

    def log_density(self, x: Tensor) -> Tensor:
        """−log 2."""
        return torch.full_like(x, -math.log(2))

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """±1."""
        return random_signs(shape, like, generator)

    def neg_entropy(self) -> float:
        """−log 2."""
        return -math.log(2)

    def moment(self, p: float) -> float:
        """1: |ξ| is."""
        return 1.0

    def log_moments(self) -> tuple[float, float]:
        """log |ξ| = 0."""
        return 0.0, 0.0
