"""The factorized normal family."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families.base import standard_normal, standard_normals
from bayesify.families.location_scale import LocationScale
from bayesify.features import Feature, power


class Normal(LocationScale):
    """q(w) = N(w; loc, scale²), entries independent; w = loc + scale ξ, ξ ~ N(0, 1)."""

    name = "normal"
    about = "w = loc + scale ξ, ξ standard normal"
    gaussian = True
    symmetric = True

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return standard_normal((*sample_shape, *self.shape), self.loc, generator)

    @classmethod
    def noise_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        if torch.compiler.is_compiling():  # the compiler fuses noise and sum of one tensor by itself
            return [torch.randn_like(q.loc) for q in qs]
        return standard_normals([q.loc for q in qs], generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return -0.5 * noise.square() - 0.5 * math.log(2 * math.pi)

    def noise_neg_entropy(self) -> float:
        return -0.5 * math.log(2 * math.pi * math.e)

    def expectation(self, feature: Feature) -> float | None:
        """E ξ^p = (p − 1)!! for even p, 0 for odd p; E |ξ|^p = 2^{p/2} Γ((p + 1)/2)/√π."""
        p = feature.power
        if feature.kind == "power" and p == int(p) and p >= 0 and p % 2:
            return 0.0
        if feature.kind in ("power", "abs") and p > -1 and (feature.kind == "abs" or p == int(p)):
            return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
        return None

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """Σξ = √n z and Σξ² = z² + χ²_{n−1}, z ~ N(0, 1) (FORMULAS 2.3)."""
        if not set(features) <= {power(1), power(2)}:
            return None
        z = self.noise((), generator)
        first = math.sqrt(n) * z
        if power(2) not in features:
            return [first for _ in features]
        second = z.square() + chi_squared(n - 1, z, generator) if n > 1 else z.square()
        return [first if feature == power(1) else second for feature in features]


def chi_squared(degrees: int, like: Tensor, generator: Generator | None) -> Tensor:
    """χ² draws of the shape of `like`."""
    return 2 * standard_gamma(degrees / 2, like, generator)


def standard_gamma(concentration: float, like: Tensor, generator: Generator | None) -> Tensor:
    """Gamma(concentration, 1) draws of the shape of `like`, drawn where the generator lives."""
    device = like.device if generator is None else generator.device
    shape = torch.full(like.shape, concentration, dtype=like.dtype, device=device)
    return torch._standard_gamma(shape, generator).to(like.device)
