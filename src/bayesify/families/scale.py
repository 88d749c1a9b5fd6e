"""Families of magnitudes, of the form |w| = scale · ξ with ξ > 0; each weight keeps its sign."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from bayesify import laws
from bayesify.families.base import Family, Start, positive
from bayesify.families.location_scale import root_mean_square
from bayesify.laws.special import bisect

FLOOR = 1e-2  # of the tensor's root mean square: the smallest magnitude, so that scale stays positive


class Scale(Family):
    """w = sign · scale · ξ, ξ > 0, entries independent.

    The centre c gives the mean magnitude, |E w| = √(c² + floor²), a smooth map that stays positive; the sign of each
    weight is that of its initial value, a constant. There is no free parameter beside the centre.
    """

    support = "positive"

    def __init__(self, centre: Tensor, negative: Tensor, floor: Tensor) -> None:
        self.centre = centre
        self.negative = negative
        self.floor = floor

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """The sign of every weight and the floor. `init_std` changes nothing: the law of ξ fixes std/mean."""
        positive("init_std", init_std)
        return Start({}, {"negative": like < 0, "floor": starting_floor(like)})

    @property
    def magnitude(self) -> Tensor:
        """√(c² + floor²): the centre's magnitude, kept away from zero."""
        return (self.centre.square() + self.floor.square()).sqrt()

    @property
    def scale(self) -> Tensor:
        """magnitude/typical."""
        return self.magnitude / self.typical

    @property
    def typical(self) -> float:
        """E ξ, by which the scale is set so that |E w| is the magnitude; exp(E log ξ) where E ξ is infinite."""
        typical = self.law.mean()
        if typical == math.inf:
            logs = self.law.log_moments()
            assert logs is not None
            typical = math.exp(logs[0])
        return float(typical)

    @property
    def sign(self) -> Tensor:
        """±1."""
        return 1 - 2 * self.negative.to(self.centre.dtype)

    def transform(self, noise: Tensor) -> Tensor:
        """w = sign scale ξ."""
        return self.sign * self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀(|w|/scale) − log scale; −inf where w has the other sign."""
        return self.noise_log_prob(self.sign * value / self.scale) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        """sign scale E ξ."""
        return self.sign * self.scale * self.law.mean()

    @property
    def variance(self) -> Tensor:
        """scale² Var ξ."""
        return self.scale.square() * self.law.variance()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale, summed (FORMULAS 2.1)."""
        return self.shape.numel() * self.noise_neg_entropy() - self.scale.log().sum()


class Exponential(Scale):
    """|w| = scale ξ, ξ ~ Exp(1); each weight keeps its sign. std = mean, so `init_std` changes nothing."""

    name = "exponential"
    law = laws.Exponential()

    @property
    def rate(self) -> Tensor:
        """1/scale."""
        return 1 / self.scale


class StdWald(Scale):
    """|w| = scale ξ, ξ ~ inverse Gaussian IG(1, 1); each weight keeps its sign.

    std = mean, so `init_std` changes nothing.
    """

    name = "std_wald"
    law = laws.InverseGaussian()


class Rayleigh(Scale):
    """|w| = scale ξ, ξ = √(2 Exp(1)); each weight keeps its sign. std/mean = 0.52, so `init_std` changes nothing."""

    name = "rayleigh"
    law = laws.Rayleigh()


class ShapedScale(Scale):
    """A Scale family whose law of ξ has a fixed shape k, the `concentration`."""

    #: the class of the law, made from k
    law_of: ClassVar[Any]

    def __init__(self, centre: Tensor, negative: Tensor, floor: Tensor, concentration: float) -> None:
        super().__init__(centre, negative, floor)
        self.concentration = concentration
        self.law = self.law_of(concentration)

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """The sign of every weight, the floor, and k: `concentration`, or the one with std/mean = `init_std`."""
        start = super().init(like, init_std)
        given = cls.concentration_for(init_std) if concentration is None else concentration
        k = cls.check_concentration(given)
        return Start({}, {**start.fixed, "concentration": k})

    @classmethod
    @abstractmethod
    def concentration_for(cls, ratio: float) -> float:
        """The k with √Var ξ / E ξ = ratio."""

    @classmethod
    def check_concentration(cls, concentration: float) -> float:
        """k, or an error that names it."""
        return positive("concentration", concentration)


class Weibull(ShapedScale):
    """|w| = scale ξ, ξ = Exp(1)^{1/k}, k the fixed `concentration`; each weight keeps its sign."""

    name = "weibull"
    law_of = laws.Weibull

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = Γ(1 + 2/k)/Γ(1 + 1/k)² − 1, solved for k."""

        def log_ratio(k: float) -> float:
            return math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)

        return bisect(log_ratio, math.log1p(ratio**2), 1e-2, 1e6)


class Gamma(ShapedScale):
    """|w| = scale ξ, ξ ~ Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign."""

    name = "gamma"
    law_of = laws.Gamma

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/k."""
        return ratio**-2

    @property
    def rate(self) -> Tensor:
        """1/scale."""
        return 1 / self.scale


class Erlang(Gamma):
    """|w| = scale ξ, ξ ~ Gamma(k, 1), k = `concentration` a fixed whole number; each weight keeps its sign."""

    name = "erlang"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/k, k rounded."""
        return float(max(1, round(ratio**-2)))

    @classmethod
    def check_concentration(cls, concentration: float) -> float:
        """k, a whole number, or an error that names it."""
        if positive("concentration", concentration) != int(concentration):
            raise ValueError(
                f"concentration={concentration!r} must be a whole number for the erlang family: "
                "round it, or use the gamma family"
            )
        return float(concentration)


class InverseGamma(ShapedScale):
    """|w| = scale ξ, ξ = 1/Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign.

    E ξ is finite for k > 1; below, the centre is the geometric mean of |w|.
    """

    name = "inverse_gamma"
    law_of = laws.InverseGamma

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/(k − 2)."""
        return 2 + ratio**-2

    @property
    def rate(self) -> Tensor:
        """The name torch.distributions.InverseGamma gives the scale."""
        return self.scale


def starting_floor(like: Tensor) -> Tensor:
    """FLOOR × the root mean square of the tensor, a scalar tensor."""
    return like.new_full((), FLOOR * root_mean_square(like))
