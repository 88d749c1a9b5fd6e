"""Families of magnitudes, of the form |w| = scale · ξ with ξ > 0; each weight keeps its sign."""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from bayesify.families.base import Family, Start, positive
from bayesify.families.location_scale import root_mean_square
from bayesify.laws.features import log, power

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
        return self.magnitude / self.typical

    @property
    def typical(self) -> float:
        """E ξ, by which the scale is set so that |E w| is the magnitude; exp(E log ξ) where E ξ is infinite."""
        mean = self.expectation(power(1))
        assert isinstance(mean, float)
        if mean < math.inf:
            return mean
        log_mean = self.expectation(log(1))
        assert isinstance(log_mean, float)
        return math.exp(log_mean)

    @property
    def sign(self) -> Tensor:
        return 1 - 2 * self.negative.to(self.centre.dtype)

    @property
    def shape(self) -> torch.Size:
        return self.centre.shape

    def transform(self, noise: Tensor) -> Tensor:
        return self.sign * self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀(|w|/scale) − log scale; −inf where w has the other sign."""
        noise = self.sign * value / self.scale
        outside = noise <= 0
        density = self.noise_log_prob(torch.where(outside, 1.0, noise)) - self.scale.log()
        return torch.where(outside, -torch.inf, density)

    @property
    def mean(self) -> Tensor:
        first = self.expectation(power(1))
        assert first is not None
        return self.sign * self.scale * first

    @property
    def variance(self) -> Tensor:
        first, second = self.expectation(power(1)), self.expectation(power(2))
        assert isinstance(first, float) and isinstance(second, float)
        return self.scale.square() * (second - first**2 if second < math.inf else math.inf)

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale, summed (FORMULAS 2.1)."""
        return self.shape.numel() * self.noise_neg_entropy() - self.scale.log().sum()


class ShapedScale(Scale):
    """A Scale family whose law of ξ has a fixed shape k, the `concentration`."""

    def __init__(self, centre: Tensor, negative: Tensor, floor: Tensor, concentration: float) -> None:
        super().__init__(centre, negative, floor)
        self.concentration = concentration

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """The sign of every weight, the floor, and k: `concentration`, or the one with std/mean = `init_std`."""
        start = super().init(like, init_std)
        shape = (
            cls.concentration_for(init_std)
            if concentration is None
            else cls.check_concentration(concentration)
        )
        return Start({}, {**start.fixed, "concentration": shape})

    @classmethod
    @abstractmethod
    def concentration_for(cls, ratio: float) -> float:
        """The k with √Var ξ / E ξ = ratio."""

    @classmethod
    def check_concentration(cls, concentration: float) -> float:
        return positive("concentration", concentration)


def starting_floor(like: Tensor) -> Tensor:
    return torch.full((), FLOOR * root_mean_square(like), dtype=like.dtype, device=like.device)
