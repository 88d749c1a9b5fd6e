"""The uniform law."""

import math

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_uniform


class Uniform(Law):
    """ξ uniform on (−1, 1): log p(ξ) = −log 2 for |ξ| ≤ 1."""

    symmetric = True

    def log_density(self, x: Tensor) -> Tensor:
        """−log 2 for |ξ| ≤ 1."""
        return torch.where(x.abs() <= 1, -math.log(2), -torch.inf).to(x.dtype)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """2u − 1, u uniform on (0, 1)."""
        return 2 * standard_uniform(shape, like, generator) - 1

    def neg_entropy(self) -> float:
        """−log 2."""
        return -math.log(2)

    def moment(self, p: float) -> float:
        """E |ξ|^p = 1/(p + 1)."""
        return 1 / (p + 1) if p > -1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """−log |ξ| ~ Exp(1)."""
        return -1.0, 1.0
