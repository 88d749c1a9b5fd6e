"""The exp-gamma family: definition (ii) of "log-gamma"."""

from typing import ClassVar

import torch
from torch import Tensor

from bayesify.families.base import Start, positive
from bayesify.families.gamma_law import GammaLaw
from bayesify.families.log_location_scale import LogLocationScale

WIDTH = 0.2  # of the smooth bend by which magnitudes stay above one


class ExpGamma(GammaLaw, LogLocationScale):
    """|w| = exp(scale ξ) > 1, ξ ~ Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign.

    Of the two laws called log-gamma this is definition (ii), the exponential of a gamma number; definition (i), its
    logarithm, is the family `log_gamma`. The centre c gives the geometric mean of |w|, which is always above one:
    m = 1 + (e + √(e² + WIDTH²))/2 with e = |c| − 1, so a weight of magnitude 2 starts at 2.01 and one of 0 at 1.01.
    The mean is finite where scale < 1, that is m < e^k.
    """

    name = "exp_gamma"
    about = "|w| = exp(scale ξ) > 1, ξ ~ Gamma(concentration, 1): log-gamma, definition (ii)"
    support = "above_one"
    constants: ClassVar = {"loc": 0.0}

    def __init__(self, centre: Tensor, negative: Tensor, concentration: float) -> None:
        self.centre = centre
        self.negative = negative
        self.concentration = concentration

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """The signs, and k: `concentration`, or the one with std/mean = `init_std` for log |w|."""
        k = positive("init_std", init_std) ** -2
        return Start(
            {},
            {
                "negative": like < 0,
                "concentration": k if concentration is None else positive("concentration", concentration),
            },
        )

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        outside = noise <= 0
        density = super().noise_log_prob(torch.where(outside, 1.0, noise))
        return torch.where(outside, -torch.inf, density)

    def noise_log_mgf(self, t: Tensor) -> Tensor:
        """log E e^{tξ} = −k log(1 − t) for t < 1."""
        outside = t >= 1
        finite = -self.concentration * (-torch.where(outside, 0.0, t)).log1p()
        return torch.where(outside, torch.inf, finite)

    @property
    def loc(self) -> Tensor:
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
        return self.scale.log()

    @property
    def variance(self) -> Tensor:
        """(E w)² (e^{−k log(1 − (s/(1−s))²)} − 1), s the scale; infinite for s ≥ ½."""
        s = self.scale
        outside = s >= 0.5
        inside = torch.where(outside, 0.0, s)
        ratio = (-self.concentration * (-(inside / (1 - inside)).square()).log1p()).expm1()
        return torch.where(outside, torch.inf, self.mean.square() * ratio)
