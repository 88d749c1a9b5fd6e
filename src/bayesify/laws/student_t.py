"""Student's t law."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_gamma, standard_normal
from bayesify.laws.normal import LOG_MEAN, LOG_VAR
from bayesify.laws.special import digamma, gamma_ratio, trigamma


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
