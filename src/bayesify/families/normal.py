"""The factorized normal family."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families.base import inside_functorch
from bayesify.families.location_scale import LocationScale
from bayesify.families.noise import standard_normal, standard_normals, symmetric_expectation
from bayesify.kernels import normal_draws
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import Feature, power
from bayesify.laws.special import EULER

LOG_MEAN = -0.5 * (EULER + math.log(2))  # of |ξ|
LOG_VAR = math.pi**2 / 8


class Normal(LocationScale):
    """q(w) = N(w; loc, scale²), entries independent; w = loc + scale ξ, ξ ~ N(0, 1)."""

    name = "normal"
    about = "w = loc + scale ξ, ξ standard normal"
    gaussian = True
    symmetric = True

    @property
    def variance(self) -> Tensor:
        return (2.0 * self.log_scale).exp()  # 2.0: torch 2.11 cannot write an integer factor to ONNX

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.shape), self.loc, generator)

    def rsample(self, n: int | None = None, generator: Generator | None = None) -> Tensor:
        """Many draws that need no gradient are made by one kernel on a GPU."""
        if n is None or not self.loc.is_cuda or torch.is_grad_enabled() or inside_functorch():
            return super().rsample(n, generator)
        return normal_draws(self.loc, self.log_scale, n, generator)

    @classmethod
    def noise_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        if torch.compiler.is_compiling():  # the compiler fuses noise and sum of one tensor by itself
            return [torch.randn_like(q.loc) for q in qs]
        return standard_normals([q.loc for q in qs], generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return normal_log_prob(noise)

    def noise_neg_entropy(self) -> float:
        return -0.5 * math.log(2 * math.pi * math.e)

    def expectation(self, feature: Feature) -> float | None:
        return symmetric_expectation(feature, normal_moment, lambda: (LOG_MEAN, LOG_VAR))

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        return normal_sums(features, n, self.loc, generator)


def normal_log_prob(noise: Tensor) -> Tensor:
    """log N(ξ; 0, 1)."""
    return -0.5 * noise.square() - 0.5 * math.log(2 * math.pi)


def normal_moment(p: float) -> float:
    """E |ξ|^p = 2^{p/2} Γ((p + 1)/2)/√π, ξ ~ N(0, 1)."""
    return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi) if p > -1 else math.inf


def normal_sums(
    features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None
) -> list[Tensor] | None:
    """Σξ = √n z and Σξ² = z² + χ²_{n−1}, z ~ N(0, 1) (FORMULAS 2.3)."""
    if any(feature not in (power(1), power(2), Feature("abs", 2)) for feature in features):
        return None
    shape = tuple(like.shape)
    z = standard_normal(shape, like, generator)
    first = math.sqrt(n) * z
    if all(feature == power(1) for feature in features):
        return [first for _ in features]
    second = z.square() + chi_squared(n - 1, shape, like, generator)
    return [first if feature == power(1) else second for feature in features]
