"""Laws of positive numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law, PowerOfGamma
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, Sums, Terms, absolute, log, power
from bayesify.laws.noise import Shape, standard_exponential, standard_gamma, standard_normal, standard_uniform
from bayesify.laws.special import EULER, bessel_k, digamma, stirling


class Exponential(PowerOfGamma):
    """ξ ~ Exp(1): log p(ξ) = −ξ, ξ ≥ 0."""

    lower = 0.0
    power_of_gamma = (1.0, 1.0, 1.0)

    def outside(self, x: Tensor) -> Tensor:
        """0 belongs to the support."""
        return x < 0

    def terms(self) -> Terms:
        """−ξ."""
        return Terms(0.0, {power(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Exp(1)."""
        return standard_exponential(shape, like, generator)

    def neg_entropy(self) -> float:
        """−1."""
        return -1.0


@dataclass
class Gamma(PowerOfGamma):
    """ξ ~ Gamma(k, 1): log p(ξ) = (k − 1) log ξ − ξ − log Γ(k), ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """1, k and 1."""
        return 1.0, self.concentration, 1.0

    def log_density(self, x: Tensor) -> Tensor:
        """(k − 1) log ξ − ξ − log Γ(k), written about ξ = k so that large k keep their digits."""
        k = self.concentration
        return (k - 1) * (x / k).log() - (x - k) - 0.5 * math.log(k) - stirling(k)

    def terms(self) -> Terms:
        """(k − 1) log ξ − ξ − log Γ(k)."""
        k = self.concentration
        return Terms(-math.lgamma(k), {log(1): k - 1, power(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Gamma(k, 1)."""
        return standard_gamma(self.concentration, shape, like, generator)

    def neg_entropy(self) -> float:
        """−(k + log Γ(k) + (1 − k) ψ(k)), for large k about log k."""
        k = self.concentration
        return (k - 1) * (digamma(k) - math.log(k)) - 0.5 * math.log(k) - stirling(k)


@dataclass
class InverseGamma(PowerOfGamma):
    """1/ξ ~ Gamma(k, 1): log p(ξ) = −(k + 1) log ξ − 1/ξ − log Γ(k), ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """−1, k and 1."""
        return -1.0, self.concentration, 1.0

    def log_density(self, x: Tensor) -> Tensor:
        """log Gamma(1/ξ; k, 1) − 2 log ξ."""
        return Gamma(self.concentration).log_density(1 / x) - 2 * x.log()

    def terms(self) -> Terms:
        """−(k + 1) log ξ − 1/ξ − log Γ(k)."""
        k = self.concentration
        return Terms(-math.lgamma(k), {log(1): -k - 1, power(-1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """1/Gamma(k, 1)."""
        return 1 / Gamma(self.concentration).sample(shape, like, generator)

    def neg_entropy(self) -> float:
        """−(k + log Γ(k) − (1 + k) ψ(k)) (FORMULAS 2.1)."""
        return Gamma(self.concentration).neg_entropy() + 2 * digamma(self.concentration)


WALD_LOG_MEAN = -0.36132861688822258  # E log ξ = −e² E₁(2) for λ = 1
WALD_LOG_SQUARE = 0.83671692783466241  # E log² ξ for λ = 1, by quadrature in 25 digits


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
        return -0.5 * math.log(2 * math.pi) - 1.5 * WALD_LOG_MEAN - 0.5

    def moment(self, p: float) -> float:
        """E ξ^p = √(2λ/π) e^λ K_{p−½}(λ)."""
        if p == 1:
            return 1.0
        shape = self.concentration
        return math.sqrt(2 * shape / math.pi) * math.exp(shape) * bessel_k(p - 0.5, shape)

    def log_moments(self) -> tuple[float, float] | None:
        """−e² E₁(2), and by quadrature, for λ = 1."""
        return (WALD_LOG_MEAN, WALD_LOG_SQUARE - WALD_LOG_MEAN**2) if self.concentration == 1 else None

    def sums(self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None) -> Sums:
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


class Rayleigh(PowerOfGamma):
    """ξ² ~ 2 Exp(1): log p(ξ) = log ξ − ½ ξ², ξ > 0."""

    lower = 0.0
    power_of_gamma = (2.0, 1.0, 2.0)

    def terms(self) -> Terms:
        """log ξ − ½ ξ²."""
        return Terms(0.0, {log(1): 1.0, power(2): -0.5})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """√(2 Exp(1))."""
        return (2 * standard_exponential(shape, like, generator)).sqrt()

    def neg_entropy(self) -> float:
        """−(1 − ½ log 2 + γ/2) (FORMULAS 2.1)."""
        return -(1 - 0.5 * math.log(2) + 0.5 * EULER)


@dataclass
class Weibull(PowerOfGamma):
    """ξ^k ~ Exp(1): log p(ξ) = log k + (k − 1) log ξ − ξ^k, ξ > 0, k the `concentration`."""

    concentration: float

    lower = 0.0

    @property
    def power_of_gamma(self) -> tuple[float, float, float]:
        """k, 1 and 1."""
        return self.concentration, 1.0, 1.0

    def terms(self) -> Terms:
        """log k + (k − 1) log ξ − ξ^k."""
        k = self.concentration
        return Terms(math.log(k), {log(1): k - 1, power(k): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Exp(1)^{1/k}."""
        return standard_exponential(shape, like, generator) ** (1 / self.concentration)

    def neg_entropy(self) -> float:
        """−(γ (1 − 1/k) − log k + 1) (FORMULAS 2.1)."""
        k = self.concentration
        return -(EULER * (1 - 1 / k) - math.log(k) + 1)
