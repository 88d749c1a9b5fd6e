"""The error family (exponential power, generalised normal)."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from bayesify.families.base import Start, positive
from bayesify.families.location_scale import LocationScale, starting_log_scale
from bayesify.families.noise import Shape, standard_gamma, standard_uniform, symmetric_expectation
from bayesify.laws.features import Feature, absolute, power
from bayesify.laws.special import digamma, gamma_ratio, trigamma


class ErrorLaw:
    """log q₀(ξ) = −½ |ξ|^{2/c} + const, c the `tail`: the members of a family that concern its base noise."""

    tail: float
    centre: Tensor
    shape: torch.Size

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return error_noise(self.tail, (*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return error_log_prob(noise, self.tail)

    def noise_neg_entropy(self) -> float:
        return error_neg_entropy(self.tail)

    def expectation(self, feature: Feature) -> float | None:
        return error_expectation(feature, self.tail)

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        return error_sums(features, n, self.tail, self.centre, generator)


class Error(ErrorLaw, LocationScale):
    """q(w) = exp(−½ |z|^{2/c})/(scale 2^{c/2+1} Γ(1 + c/2)), z = (w − loc)/scale; w = loc + scale ξ.

    c is the option `tail`: 1 is the normal family, 2 the Laplace family of twice the scale, c → 0 is uniform on
    (−scale, scale). The family of mean zero is `zero_mean_error`.
    """

    name = "error"
    about = "w = loc + scale ξ, log q(ξ) = −½ |ξ|^{2/tail} + const (exponential power)"
    symmetric = True

    def __init__(self, centre: Tensor, log_scale: Tensor, tail: float) -> None:
        super().__init__(centre, log_scale)
        self.centre = centre
        self.tail = tail

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, tail: float = 1.0) -> Start:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor; the shape c = `tail`."""
        noise_std = math.sqrt(error_moment(2, positive("tail", tail)))
        return Start({"log_scale": starting_log_scale(like, init_std, noise_std)}, {"tail": float(tail)})


def error_noise(c: float, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
    """ξ = s (2 Gamma(c/2, 1))^{c/2}, s = ±1."""
    size = (2 * standard_gamma(c / 2, shape, like, generator)) ** (c / 2)
    return torch.where(standard_uniform(shape, like, generator) < 0.5, -size, size)


def error_log_prob(noise: Tensor, c: float) -> Tensor:
    """−½ |ξ|^{2/c} − log(2^{c/2+1} Γ(1 + c/2))."""
    return -0.5 * noise.abs() ** (2 / c) - log_norm(c)


def error_neg_entropy(c: float) -> float:
    return -c / 2 - log_norm(c)


def log_norm(c: float) -> float:
    return (c / 2 + 1) * math.log(2) + math.lgamma(1 + c / 2)


def error_moment(p: float, c: float) -> float:
    """E |ξ|^p = 2^{pc/2} Γ(c/2 + pc/2)/Γ(c/2)."""
    return 2 ** (p * c / 2) * gamma_ratio(c / 2, p * c / 2)


def error_expectation(feature: Feature, c: float) -> float | None:
    """log |ξ| = (c/2)(log 2 + log Gamma(c/2))."""
    half = c / 2
    return symmetric_expectation(
        feature,
        lambda p: error_moment(p, c),
        lambda: (half * (math.log(2) + digamma(half)), half**2 * trigamma(half)),
    )


def error_sums(
    features: Sequence[Feature], n: int, c: float, like: Tensor, generator: Generator | None
) -> list[Tensor] | None:
    """Σ|ξ|^{2/c} = 2 Gamma(nc/2, 1) (FORMULAS 2.3)."""
    known = (absolute(2 / c), power(2 / c)) if (2 / c) % 2 == 0 else (absolute(2 / c),)
    if any(feature not in known for feature in features):
        return None
    total = 2 * standard_gamma(n * c / 2, tuple(like.shape), like, generator)
    return [total for _ in features]
