"""The face of every law: the distribution of one number ξ in its standard form."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor

from bayesify.laws.features import Feature, Sums, Terms, absolute, power
from bayesify.laws.noise import Shape, standard_gamma
from bayesify.laws.special import digamma, gamma_ratio, trigamma


class Law(ABC):
    """The distribution of one number ξ, free of location and scale; numbers that it is made from give its shape.

    A family draws its base noise ξ from a law, and a prior is the density of loc + scale ξ with loc and scale fixed.
    Members, in this order everywhere in this room: `terms` or `log_density`, `sample`, `neg_entropy`, `moment`,
    `log_moments`, `sums`. A law of positive numbers has `lower` = 0.
    """

    #: the lower end of the support: −inf for the whole line, 0 for positive numbers
    lower: ClassVar[float] = -math.inf
    #: p(−ξ) = p(ξ)
    symmetric: ClassVar[bool] = False
    #: where log p is not analytic in the upper half of the complex plane, for laws without `terms`; None: not known
    singularities: Sequence[complex] | None = None

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), elementwise; −inf, with gradient 0, outside the support."""
        if self.lower < 0:
            return self.log_density(x)
        return where_inside(x, self.outside(x), self.log_density)

    def outside(self, x: Tensor) -> Tensor:
        """Is x outside the support of a law of positive numbers?"""
        return x <= self.lower

    def log_density(self, x: Tensor) -> Tensor:
        """log p(x) inside the support: the sum of `terms`, or a formula of the law's own."""
        terms = self.terms()
        assert terms is not None, f"{type(self).__name__} has neither terms nor a log_density"
        return terms(x)

    def terms(self) -> Terms | None:
        """log p as a sum of features of x; None where it is no such sum."""
        return None

    @abstractmethod
    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """Draws of ξ, of the dtype and device of `like`, without gradients."""

    @abstractmethod
    def neg_entropy(self) -> float | Tensor:
        """E log p(ξ)."""

    @abstractmethod
    def moment(self, p: float) -> float | Tensor | None:
        """E |ξ|^p; inf where it is infinite, None where it is not known."""

    def log_moments(self) -> tuple[float, float] | None:
        """The mean and the variance of log |ξ|; None where they are not known."""
        return None

    def expectation(self, feature: Feature) -> float | Tensor | None:
        """E t(ξ); inf where E |t(ξ)| is infinite, None where it is not known."""
        kind, p = feature
        if kind == "log":
            logs = self.log_moments()
            if logs is None or p not in (0, 1, 2):
                return None
            return (1.0, logs[0], logs[1] + logs[0] ** 2)[int(p)]
        if kind == "power" and self.lower < 0 and p != int(p):
            return None  # ξ^p is no real number where ξ < 0
        if kind == "power" and self.lower < 0 and p % 2:
            return self.odd_moment(p)
        return self.moment(p)

    def odd_moment(self, p: float) -> float | Tensor | None:
        """E ξ^p for odd p of a law on the whole line: 0 for symmetric ones, where E |ξ|^p is finite."""
        size = self.moment(p)
        if size is None or size == math.inf:
            return size
        return 0.0 if self.symmetric else None

    def mean(self) -> float | Tensor:
        """E ξ; of a symmetric law 0, its median where it has no mean."""
        first = 0.0 if self.symmetric else self.expectation(power(1))
        assert first is not None, f"{type(self).__name__} has neither symmetry nor an expectation of ξ"
        return first

    def variance(self) -> float | Tensor:
        """Var ξ; inf where it is infinite."""
        second = self.expectation(power(2))
        assert second is not None, f"{type(self).__name__} has no moment(2)"
        return math.inf if isinstance(second, float) and math.isinf(second) else second - self.mean() ** 2

    def sums(self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None) -> Sums:
        """One exact joint draw of Σᵢ t(ξᵢ) over n draws for every entry of `like`, at a cost that does not depend on
        n; None where no such draw is known for these features together."""
        return None


class PowerOfGamma(Law):
    """|ξ|^p ~ θ Gamma(k, 1), with (p, k, θ) = `power_of_gamma`. So, for any r,

    E |ξ|^r = θ^{r/p} Γ(k + r/p)/Γ(k),   E log |ξ| = (log θ + ψ(k))/p,   Var log |ξ| = ψ₁(k)/p²,

    and Σᵢ |ξᵢ|^p over n draws is one draw of θ Gamma(nk, 1).
    """

    @property
    @abstractmethod
    def power_of_gamma(self) -> tuple[float, float, float]:
        """(p, k, θ)."""

    def moment(self, p: float) -> float:
        """θ^{r/p} Γ(k + r/p)/Γ(k), r the argument."""
        own, k, theta = self.power_of_gamma
        return theta ** (p / own) * gamma_ratio(k, p / own)

    def log_moments(self) -> tuple[float, float]:
        """(log θ + ψ(k))/p and ψ₁(k)/p²."""
        p, k, theta = self.power_of_gamma
        return (math.log(theta) + digamma(k)) / p, trigamma(k) / p**2

    def sums(self, features: Sequence[Feature], n: int, like: Tensor, generator: Generator | None) -> Sums:
        """Σ|ξ|^p = θ Gamma(nk, 1) (FORMULAS 2.3)."""
        p, k, theta = self.power_of_gamma
        known = (absolute(p), power(p)) if self.lower >= 0 or p % 2 == 0 else (absolute(p),)
        if any(feature not in known for feature in features):
            return None
        total = standard_gamma(n * k, tuple(like.shape), like, generator)
        return [total if theta == 1 else theta * total for _ in features]


def where_inside(
    value: Tensor, outside: Tensor, density: Callable[[Tensor], Tensor], inner: float = 1.0
) -> Tensor:
    """density(value), and −inf where `outside`; there the density is taken at `inner`, so that gradients are 0."""
    return torch.where(outside, -torch.inf, density(torch.where(outside, inner, value)))
