"""Laws on the whole line whose entries are independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from bayesify.laws.base import Law, PowerOfGamma
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, Sums, Terms, absolute, power
from bayesify.laws.noise import Shape, random_signs, standard_gamma, standard_normal, standard_uniform
from bayesify.laws.special import EULER, alternating_zeta, digamma, gamma_ratio, log_scaled_e1, trigamma

LOG_MEAN = -0.5 * (EULER + math.log(2))  # of |ξ|
LOG_VAR = math.pi**2 / 8


class Normal(Law):
    """ξ ~ N(0, 1): log p(ξ) = −½ ξ² − ½ log 2π."""

    symmetric = True

    def log_density(self, x: Tensor) -> Tensor:
        """−½ ξ² − ½ log 2π."""
        return -0.5 * x.square() - 0.5 * math.log(2 * math.pi)

    def terms(self) -> Terms:
        """With the first power, which a location brings in."""
        return Terms(-0.5 * math.log(2 * math.pi), {power(1): 0.0, power(2): -0.5})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """N(0, 1)."""
        return standard_normal(shape, like, generator)

    def neg_entropy(self) -> float:
        """−½ log 2πe."""
        return -0.5 * math.log(2 * math.pi * math.e)

    def moment(self, p: float) -> float:
        """E |ξ|^p = 2^{p/2} Γ((p + 1)/2)/√π."""
        return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi) if p > -1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """−½ (γ + log 2) and π²/8."""
        return LOG_MEAN, LOG_VAR

    def sums(self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None) -> Sums:
        """Σξ = √n z and Σξ² = z² + χ²_{n−1}, z ~ N(0, 1) (FORMULAS 2.3)."""
        if any(feature not in (power(1), power(2), absolute(2)) for feature in features):
            return None
        shape = tuple(like.shape)
        z = standard_normal(shape, like, generator)
        first = math.sqrt(n) * z
        if all(feature == power(1) for feature in features):
            return [first for _ in features]
        second = z.square() + chi_squared(n - 1, shape, like, generator)
        return [first if feature == power(1) else second for feature in features]


class Laplace(PowerOfGamma):
    """log p(ξ) = −|ξ| − log 2; |ξ| ~ Exp(1)."""

    symmetric = True
    singularities = (0j,)
    power_of_gamma = (1.0, 1.0, 1.0)

    def terms(self) -> Terms:
        """−|ξ| − log 2."""
        return Terms(-math.log(2), {absolute(1): -1.0})

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ξ = −sign(v) log(1 − |v|), v uniform on (−1, 1)."""
        v = 2 * standard_uniform(shape, like, generator) - 1
        return -v.sign() * (-v.abs()).log1p()

    def neg_entropy(self) -> float:
        """−1 − log 2."""
        return -1 - math.log(2)

    def sums(self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None) -> Sums:
        """Σξ = Gamma(n) − Gamma(n) or Σ|ξ| = Gamma(n), one of the two (FORMULAS 2.3)."""
        if any(feature != power(1) for feature in features):
            return super().sums(features, n, like, generator)
        first, second = (standard_gamma(float(n), tuple(like.shape), like, generator) for _ in range(2))
        return [first - second for _ in features]


# The first two derivatives of E |ξ|^p = 2 Γ(1 + p) η(p) at p = 0, with η″(0) = −0.0610291…
LOGISTIC_LOG_MEAN = math.log(math.pi / 2) - EULER
LOGISTIC_LOG_VAR = math.pi**2 / 6 + 2 * -0.06102914376805610 - math.log(math.pi / 2) ** 2


class Logistic(Law):
    """log p(ξ) = log s(ξ) + log s(−ξ), s the sigmoid."""

    symmetric = True
    singularities = (complex(0, math.pi),)

    def log_density(self, x: Tensor) -> Tensor:
        """log s(ξ) + log s(−ξ), which is smooth at 0, where an |ξ| would leave no second derivative."""
        return logsigmoid(x) + logsigmoid(-x)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ξ = log(u/(1 − u)), u uniform on (0, 1)."""
        return standard_uniform(shape, like, generator).logit()

    def neg_entropy(self) -> float:
        """−2."""
        return -2.0

    def moment(self, p: float) -> float:
        """E |ξ|^p = 2 Γ(1 + p) η(p), η the alternating zeta function."""
        return 2 * math.gamma(1 + p) * alternating_zeta(p) if p > -1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """log(π/2) − γ and π²/6 + 2 η″(0) − log²(π/2)."""
        return LOGISTIC_LOG_MEAN, LOGISTIC_LOG_VAR


@dataclass
class StudentT(Law):
    """log p(ξ) = log Γ((ν+1)/2) − log Γ(ν/2) − ½ log πν − (ν+1)/2 log(1 + ξ²/ν), ν = `df`.

    A learned df is a tensor, for which there is the density alone.
    """

    df: Any

    symmetric = True

    @property
    def singularities(self) -> list[complex]:  # type: ignore[override]
        """ξ² = −ν."""
        return [complex(0, math.sqrt(self.df))]

    def log_density(self, x: Tensor) -> Tensor:
        """Of every entry, with gradients to df where it is a tensor."""
        constant = log_norm(self.df)
        if isinstance(constant, Tensor):
            constant = constant.to(x.dtype)
        return constant - (self.df + 1) / 2 * (x.square() / self.df).log1p()

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """z √(ν/χ²_ν), z ~ N(0, 1)."""
        z = standard_normal(shape, like, generator)
        return z * (self.df / (2 * standard_gamma(self.df / 2, shape, like, generator))).sqrt()

    def neg_entropy(self) -> float:
        """log p(0) − (ν+1)/2 (ψ((ν+1)/2) − ψ(ν/2))."""
        half = self.df / 2
        return log_norm(self.df) - (half + 0.5) * (digamma(half + 0.5) - digamma(half))

    def moment(self, p: float) -> float:
        """E |ξ|^p = ν^{p/2} Γ((p+1)/2) Γ((ν−p)/2)/(√π Γ(ν/2)) for −1 < p < ν."""
        if not -1 < p < self.df:
            return math.inf
        ratio = math.gamma((p + 1) / 2) / math.sqrt(math.pi) * gamma_ratio(self.df / 2, -p / 2)
        return self.df ** (p / 2) * ratio

    def log_moments(self) -> tuple[float, float]:
        """Those of |z|, and of √(ν/χ²_ν)."""
        half = self.df / 2
        return LOG_MEAN + 0.5 * (math.log(half) - digamma(half)), LOG_VAR + 0.25 * trigamma(half)


def log_norm(df: Any) -> Any:
    """log Γ((ν+1)/2) − log Γ(ν/2) − ½ log πν, of a tensor in float64: it is the difference of two large numbers."""
    if isinstance(df, Tensor):
        half = df.double() / 2
        return torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * (2 * math.pi * half).log()
    return math.lgamma(df / 2 + 0.5) - math.lgamma(df / 2) - 0.5 * math.log(math.pi * df)


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


HORSESHOE_NEG_ENTROPY = -2.1098718360616477  # E log p(ξ), by quadrature in 25 digits


class Horseshoe(Law):
    """ξ = λ z, λ half-Cauchy, z standard normal, λ integrated out: log p(ξ) = x + log E₁(x) − ½ log 2π³, x = ξ²/2.

    The density has no bound at 0, where numbers too small for x to be a normal number count as the smallest that is
    not. Its tails are like 1/ξ²: there is no mean.
    """

    symmetric = True
    singularities = (0j,)

    def log_density(self, x: Tensor) -> Tensor:
        """x + log E₁(x) − ½ log 2π³, x = ξ²/2."""
        return log_scaled_e1(0.5 * x.square()) - 0.5 * math.log(2 * math.pi**3)

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """z₁ z₂/z₃: a ratio of normals is Cauchy."""
        first, second, third = (standard_normal(shape, like, generator) for _ in range(3))
        return first * second / third.abs().clamp(min=1e-12)

    def neg_entropy(self) -> float:
        """−2.10987."""
        return HORSESHOE_NEG_ENTROPY

    def moment(self, p: float) -> float:
        """E |ξ|^p = E λ^p E |z|^p = E |z|^p/cos(πp/2) for |p| < 1."""
        return Normal().moment(p) / math.cos(math.pi * p / 2) if abs(p) < 1 else math.inf

    def log_moments(self) -> tuple[float, float]:
        """Those of |z|, and log λ has mean 0 and variance π²/4."""
        return LOG_MEAN, LOG_VAR + math.pi**2 / 4


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
