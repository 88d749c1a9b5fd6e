"""The error law (exponential power, generalised normal)."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesify.laws.base import PowerOfGamma
from bayesify.laws.features import Terms, absolute, power
from bayesify.laws.noise import Shape, standard_gamma, standard_uniform


@dataclass
class Error(PowerOfGamma):
    """log p(ξ) = −½ |ξ|^{2/c} − log(2^{c/2+1} Γ(1 + c/2)), c the `tail`; |ξ|^{2/c} ~ 2 Gamma(c/2, 1).

    c = 1 is the normal law, c = 2 the Laplace law of twice the scale, c → 0 is uniform on (−1, 1).
    """

    tail: float

    symmetric = True
    singularities = (0j,)

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """2/c, c/2 and 2."""
        return 2 / self.tail, self.tail / 2, 2.0

    def terms(self) -> Terms:
        """With ξ^{2/c} for |ξ|^{2/c} where 2/c is even: a polynomial."""
        n = 2 / self.tail
        return Terms(-self.log_norm, {absolute(n) if n % 2 else power(n): -0.5})

    @property
    def log_norm(self) -> float:
        """log(2^{c/2+1} Γ(1 + c/2))."""
        return (self.tail / 2 + 1) * math.log(2) + math.lgamma(1 + self.tail / 2)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ξ = s (2 Gamma(c/2, 1))^{c/2}, s = ±1."""
        half = self.tail / 2
        size = (2 * standard_gamma(half, shape, like, generator)) ** half
        return torch.where(standard_uniform(shape, like, generator) < 0.5, -size, size)

    def neg_entropy(self) -> float:
        """−c/2 − log(2^{c/2+1} Γ(1 + c/2))."""
        return -self.tail / 2 - self.log_norm
