"""Families of magnitudes, of the form log |w| = loc + scale · ξ; each weight keeps its sign."""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from bayesify import laws
from bayesify.families.base import Family, Start, positive
from bayesify.families.scale import starting_floor

WIDTH = 0.2  # of the smooth bend by which the magnitudes of `exp_gamma` stay above one


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
        """log √(c² + floor²)."""
        return 0.5 * (self.centre.square() + self.floor.square()).log()

    @property
    def scale(self) -> Tensor:
        """exp(log_scale)."""
        return self.log_scale.exp()

    @property
    def sign(self) -> Tensor:
        """±1."""
        return 1 - 2 * self.negative.to(self.centre.dtype)

    def transform(self, noise: Tensor) -> Tensor:
        """w = sign exp(loc + scale ξ)."""
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
        """sign e^{loc} E e^{scale ξ}."""
        return self.sign * (self.loc + self.noise_log_mgf(self.scale)).exp()

    @property
    def variance(self) -> Tensor:
        """(E w)² (E e^{2σξ}/(E e^{σξ})² − 1)."""
        ratio = self.noise_log_mgf(2 * self.scale) - 2 * self.noise_log_mgf(self.scale)
        return self.mean.square() * ratio.expm1()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale − loc − scale E ξ, summed (FORMULAS 2.1)."""
        shifts = self.log_scale + self.loc + self.scale * self.law.mean()
        return self.shape.numel() * self.noise_neg_entropy() - shifts.sum()


class LogNormal(LogLocationScale):
    """log |w| = loc + scale ξ, ξ ~ N(0, 1); each weight keeps its sign. The centre is the median."""

    name = "log_normal"
    law = laws.Normal()

    def noise_log_mgf(self, t: Tensor) -> Tensor:
        """log E e^{tξ} = t²/2."""
        return 0.5 * t.square()


class ExpGamma(LogLocationScale):
    """|w| = exp(scale ξ) > 1, ξ ~ Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign.

    Of the two laws called log-gamma this is definition (ii), the exponential of a gamma number; definition (i), its
    logarithm, is the family `log_gamma`. The centre c gives the geometric mean of |w|, which is always above one:
    m = 1 + (e + √(e² + WIDTH²))/2 with e = |c| − 1, so a weight of magnitude 2 starts at 2.01 and one of 0 at 1.01.
    The mean is finite where scale < 1, that is m < e^k.
    """

    name = "exp_gamma"
    support = "above_one"
    constants: ClassVar = {"loc": 0.0}

    def __init__(self, centre: Tensor, negative: Tensor, concentration: float) -> None:
        self.centre = centre
        self.negative = negative
        self.concentration = concentration
        self.law = laws.Gamma(concentration)

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """The signs, and k: `concentration`, or the one with std/mean = `init_std` for log |w|."""
        k = positive("init_std", init_std) ** -2
        if concentration is not None:
            k = positive("concentration", concentration)
        return Start({}, {"negative": like < 0, "concentration": k})

    def noise_log_mgf(self, t: Tensor) -> Tensor:
        """log E e^{tξ} = −k log(1 − t) for t < 1."""
        outside = t >= 1
        finite = -self.concentration * (-torch.where(outside, 0.0, t)).log1p()
        return torch.where(outside, torch.inf, finite)

    @property
    def loc(self) -> Tensor:
        """0."""
        return torch.zeros_like(self.centre)

    @property
    def scale(self) -> Tensor:
        """log m/k, m the geometric mean of |w|."""
        excess = self.sign * self.centre - 1
        root = (excess.square() + WIDTH**2).sqrt()
        below = 0.5 * WIDTH**2 / (root - excess.clamp(max=0))  # = (e + √…)/2 without cancellation
        return torch.where(excess < 0, below, 0.5 * (root + excess)).log1p() / self.concentration

    @property
    def log_scale(self) -> Tensor:  # type: ignore[override]
        """log scale."""
        return self.scale.log()

    @property
    def variance(self) -> Tensor:
        """(E w)² (e^{−k log(1 − (s/(1−s))²)} − 1), s the scale; infinite for s ≥ ½."""
        s = self.scale
        outside = s >= 0.5
        inside = torch.where(outside, 0.0, s)
        ratio = (-self.concentration * (-(inside / (1 - inside)).square()).log1p()).expm1()
        return torch.where(outside, torch.inf, self.mean.square() * ratio)
