"""Families of magnitudes, of the form log |w| = loc + scale · ξ; each weight keeps its sign."""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from bayesify.families.base import Family, Start, positive
from bayesify.families.scale import starting_floor
from bayesify.laws.features import power


class LogLocationScale(Family):
    """w = sign · exp(loc + scale ξ), entries independent.

    loc = log √(c² + floor²) with the centre c: where ξ has median 0, |c| is the median of |w|, up to the floor that
    keeps the logarithm finite. The sign of each weight is that of its initial value, a constant. The free parameter is
    log_scale.
    """

    support = "positive"

    def __init__(self, centre: Tensor, log_scale: Tensor, negative: Tensor, floor: Tensor) -> None:
        self.centre = centre
        self.log_scale = log_scale
        self.negative = negative
        self.floor = floor

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """The signs, the floor, and the scale that gives std/mean = `init_std` where ξ is normal."""
        log_scale = 0.5 * math.log(math.log1p(positive("init_std", init_std) ** 2))
        free = {"log_scale": torch.full_like(like, log_scale)}
        return Start(free, {"negative": like < 0, "floor": starting_floor(like)})

    @abstractmethod
    def noise_log_mgf(self, t: Tensor) -> Tensor:
        """log E exp(t ξ), elementwise, with gradients to t; inf where infinite."""

    @property
    def loc(self) -> Tensor:
        return 0.5 * (self.centre.square() + self.floor.square()).log()

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    @property
    def sign(self) -> Tensor:
        return 1 - 2 * self.negative.to(self.centre.dtype)

    @property
    def shape(self) -> torch.Size:
        return self.centre.shape

    def transform(self, noise: Tensor) -> Tensor:
        return self.sign * torch.addcmul(self.loc, self.scale, noise).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀((log |w| − loc)/scale) − log scale − log |w|; −inf where w has the other sign."""
        magnitude = self.sign * value
        outside = magnitude <= 0
        log_magnitude = torch.where(outside, 1.0, magnitude).log()
        noise = (log_magnitude - self.loc) / self.scale
        density = self.noise_log_prob(noise) - self.log_scale - log_magnitude
        return torch.where(outside, -torch.inf, density)

    @property
    def mean(self) -> Tensor:
        return self.sign * (self.loc + self.noise_log_mgf(self.scale)).exp()

    @property
    def variance(self) -> Tensor:
        """(E w)² (E e^{2σξ}/(E e^{σξ})² − 1)."""
        ratio = self.noise_log_mgf(2 * self.scale) - 2 * self.noise_log_mgf(self.scale)
        return self.mean.square() * ratio.expm1()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale − loc − scale E ξ, summed (FORMULAS 2.1)."""
        first = self.expectation(power(1))
        assert first is not None
        shifts = self.log_scale + self.loc + self.scale * first
        return self.shape.numel() * self.noise_neg_entropy() - shifts.sum()
