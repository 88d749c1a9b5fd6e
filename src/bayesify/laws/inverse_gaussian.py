"""The inverse-Gaussian law, the standard Wald law for concentration 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, Terms, absolute, log, power
from bayesify.laws.noise import Shape, standard_normal, standard_uniform
from bayesify.laws.special import bessel_k

LOG_MEAN = -0.36132861688822258  # E log ξ = −e² E₁(2) for λ = 1
LOG_SQUARE = 0.83671692783466241  # E log² ξ for λ = 1, by quadrature in 25 digits


@dataclass
class InverseGaussian(Law):
    """ξ ~ IG(mean 1, λ): log p(ξ) = ½ log(λ/2π) − 3/2 log ξ − λ (ξ − 1)²/(2ξ), ξ > 0, λ the `concentration`.

    The entropy and the moments of log ξ are known for λ = 1 alone, the standard Wald law.
    """

    concentration: float = 1.0

    lower = 0.0

    def log_density(self, x: Tensor) -> Tensor:
        """½ log(λ/2π) − 3/2 log ξ − λ (ξ − 1)²/(2ξ)."""
        shape = self.concentration
        constant = 0.5 * math.log(shape / (2 * math.pi))
        return constant - 1.5 * x.log() - shape * (x - 1).square() / (2 * x)

    def terms(self) -> Terms:
        """½ log(λ/2π) + λ − 3/2 log ξ − λξ/2 − λ/(2ξ)."""
        shape = self.concentration
        constant = 0.5 * math.log(shape / (2 * math.pi)) + shape
        return Terms(constant, {log(1): -1.5, power(1): -0.5 * shape, power(-1): -0.5 * shape})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """By the two roots x and 1/x of λ (x − 1)²/x = z² (Michael, Schucany, Haas 1976)."""
        half = standard_normal(shape, like, generator).square() / (2 * self.concentration)
        root = 1 / (1 + half + (half * (half + 2)).sqrt())
        return torch.where(standard_uniform(shape, like, generator) * (1 + root) <= 1, root, 1 / root)

    def neg_entropy(self) -> float:
        """−½ log 2π − 3/2 E log ξ − ½ for λ = 1 (FORMULAS 2.1)."""
        if self.concentration != 1:
            raise ValueError(
                f"the entropy of IG(1, {self.concentration}) is not known here: use concentration=1"
            )
        return -0.5 * math.log(2 * math.pi) - 1.5 * LOG_MEAN - 0.5

    def moment(self, p: float) -> float:
        """E ξ^p = √(2λ/π) e^λ K_{p−½}(λ)."""
        if p == 1:
            return 1.0
        shape = self.concentration
        return math.sqrt(2 * shape / math.pi) * math.exp(shape) * bessel_k(p - 0.5, shape)

    def log_moments(self) -> tuple[float, float] | None:
        """−e² E₁(2), and by quadrature, for λ = 1."""
        return (LOG_MEAN, LOG_SQUARE - LOG_MEAN**2) if self.concentration == 1 else None

    def sums(
        self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None
    ) -> list[Tensor] | None:
        """Σξ ~ n IG(1, nλ) and Σ1/ξ = n²/Σξ + χ²_{n−1}/λ, independent (FORMULAS 2.3)."""
        first, inverse = (power(1), absolute(1)), (power(-1), absolute(-1))
        if any(feature not in (*first, *inverse) for feature in features):
            return None
        shape = tuple(like.shape)
        total = n * InverseGaussian(n * self.concentration).sample(shape, like, generator)
        if all(feature in first for feature in features):
            return [total for _ in features]
        inverses = n**2 / total + chi_squared(n - 1, shape, like, generator) / self.concentration
        return [total if feature in first else inverses for feature in features]
