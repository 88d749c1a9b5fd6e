"""Functions of a weight or of its base noise that log-densities are sums of."""

import math
from typing import NamedTuple

from torch import Tensor


class Feature(NamedTuple):
    """x^p ("power"), |x|^p ("abs") or (log |x|)^p ("log")."""

    kind: str
    power: float

    def __call__(self, x: Tensor) -> Tensor:
        """The feature of every entry of `x`."""
        if self.kind == "power":
            return x**self.power
        return x.abs() ** self.power if self.kind == "abs" else x.abs().log() ** self.power


def power(p: float) -> Feature:
    """x^p."""
    return Feature("power", p)


def absolute(p: float) -> Feature:
    """|x|^p."""
    return Feature("abs", p)


def log(p: float = 1) -> Feature:
    """(log |x|)^p."""
    return Feature("log", p)


#: of draws, one for each of several features; None where no such draw is known
Sums = list[Tensor] | None


class Terms(NamedTuple):
    """log p(x) = constant + Σ coefficient · feature(x)."""

    constant: float
    coefficients: dict[Feature, float]

    def __call__(self, x: Tensor) -> Tensor:
        """log p(x), elementwise."""
        total: Tensor | float = self.constant
        for feature, coefficient in self.coefficients.items():
            total = total + coefficient * feature(x)
        assert isinstance(total, Tensor)
        return total

    def moved(self, loc: float, scale: float) -> "Terms | None":
        """The terms of w = loc + scale x: those of log p((w − loc)/scale) − log scale, in features of w.

        x^n = Σ_j binom(n, j) w^j (−loc)^{n−j}/scaleⁿ for n = 0, 1, …, and at loc = 0 |x|^p = |w|^p/scale^p and
        log^n |x| = Σ_j binom(n, j) log^j |w| (−log scale)^{n−j}. None where loc is another and x^p no polynomial.
        """
        total: dict[Feature, float] = {}
        for feature, coefficient in self.coefficients.items():
            kind, p = feature
            n, parts = int(p), {feature: scale**-p}
            if kind == "log":
                parts = {log(j): factor for j, factor in _binomial(n, -math.log(scale))}
            elif loc:
                if n != p or n < 0 or (kind == "abs" and n % 2):
                    return None
                parts = {power(j): factor / scale**n for j, factor in _binomial(n, -loc)}
            for part, factor in parts.items():
                total[part] = total.get(part, 0.0) + coefficient * factor
        constants = [total.pop(one, 0.0) for one in (power(0), log(0))]
        return Terms(self.constant + sum(constants) - math.log(scale), total)


def _binomial(n: int, a: float) -> list[tuple[int, float]]:
    """(x + a)ⁿ = Σ_j factor · x^j as pairs (j, factor); compiled code traces products of a symbol, not its powers."""
    return [(j, math.comb(n, j) * math.prod([a] * (n - j))) for j in range(n, -1, -1)]
