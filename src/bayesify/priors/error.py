"""The error prior (exponential power, generalised normal)."""

import math
from typing import Any

from torch import Tensor

from bayesify.laws.features import absolute, power
from bayesify.priors.base import Prior, Terms, number, positive


class Error(Prior):
    """p(w) = exp(−½ |z|^{2/c})/(s 2^{c/2+1} Γ(1 + c/2)), z = (w − loc)/s, c the option `tail`; entries independent.

    c = 1 is the normal prior, c = 2 the Laplace prior of twice the scale.
    """

    name = "error"
    about = "exp(−½ |(w − loc)/scale|^{2/tail}), normalised (exponential power)"
    constants = ("loc", "tail")

    def __init__(self, loc: float = 0.0, scale: float = 1.0, tail: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)
        self.tail = positive("tail", tail)

    @property
    def constant(self) -> float:
        half = self.tail / 2
        return -math.log(self.scale) - (half + 1) * math.log(2) - math.lgamma(1 + half)

    def log_prob(self, value: Tensor) -> Tensor:
        z = ((value - self.loc) / self.scale).abs()
        return self.constant - 0.5 * z ** (2 / self.tail)

    def terms(self) -> Terms | None:
        """A polynomial where 2/c is even, |w|^{2/c} where loc = 0, else no sum of features."""
        n, m, s = 2 / self.tail, self.loc, self.scale
        if n % 2 == 0:
            binomial, parts = 1.0, {}
            for k in range(int(n), -1, -1):  # −½ (n over k) w^k (−m)^{n−k}/s^n
                parts[power(k)] = -0.5 * binomial * (-m) ** (n - k) / s**n
                binomial *= k / (n - k + 1)
            constant = parts.pop(power(0))
            return Terms(self.constant + constant, {f: part for f, part in parts.items() if part})
        return None if m else Terms(self.constant, {absolute(n): -0.5 * s**-n})

    @property
    def options(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale, "tail": self.tail}
