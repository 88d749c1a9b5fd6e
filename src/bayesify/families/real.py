"""Families of the form w = loc + scale · ξ beside the normal one."""

from typing import ClassVar

import torch
from torch import Tensor

from bayesify import laws
from bayesify.families.base import Start, positive
from bayesify.families.location_scale import LocationScale, root_mean_square, starting_log_scale
from bayesify.laws.special import inverse_trigamma


class Laplace(LocationScale):
    """q(w) = exp(−|w − loc|/scale)/(2 scale), entries independent; w = loc + scale ξ, ξ standard Laplace."""

    name = "laplace"
    symmetric = True
    law = laws.Laplace()


class Logistic(LocationScale):
    """q(w) = s(z)(1 − s(z))/scale, z = (w − loc)/scale, s the sigmoid; w = loc + scale ξ, ξ standard logistic."""

    name = "logistic"
    symmetric = True
    law = laws.Logistic()


class Horseshoe(LocationScale):
    """w = loc + scale ξ, ξ = λ z, λ half-Cauchy, z standard normal; it has no mean.

    The density has a peak without bound at loc and tails like 1/w²: there is no mean, and the variance is infinite. So
    `mean` gives the median loc, and KL to normal, Laplace and logistic priors is infinite (FORMULAS 2.2).
    """

    name = "horseshoe"
    symmetric = True
    law = laws.Horseshoe()


class Error(LocationScale):
    """q(w) = exp(−½ |z|^{2/c})/(scale 2^{c/2+1} Γ(1 + c/2)), z = (w − loc)/scale; w = loc + scale ξ.

    c is the option `tail`: 1 is the normal family, 2 the Laplace family of twice the scale, c → 0 is uniform on
    (−scale, scale). The family of mean zero is `zero_mean_error`.
    """

    name = "error"
    symmetric = True

    def __init__(self, centre: Tensor, log_scale: Tensor, tail: float) -> None:
        super().__init__(centre, log_scale)
        self.tail = tail
        self.law = laws.Error(tail)

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, tail: float = 1.0) -> Start:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor; the shape c = `tail`."""
        law = laws.Error(positive("tail", tail))
        return Start({"log_scale": starting_log_scale(like, init_std, law)}, {"tail": float(tail)})


class Radial(LocationScale):
    """w = loc + scale ξ, ξ = ρ z/‖z‖, ρ = |N(0, 1)|, z standard normal of the whole tensor: dependent entries.

    The length of ξ is that of one normal number; so E ξ_j² = 1/D for D entries. They are uncorrelated but dependent:
    `log_prob` and `noise_log_prob` have one value per draw of the tensor, and there is no local pass.
    """

    name = "radial"
    independent = False

    def __init__(self, centre: Tensor, log_scale: Tensor) -> None:
        super().__init__(centre, log_scale)
        self.law = laws.Radial(tuple(centre.shape))

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """Starting std of every entry = `init_std` × root mean square, so scale is √D times that."""
        return Start({"log_scale": starting_log_scale(like, init_std, laws.Radial(tuple(like.shape)))})

    def log_prob(self, value: Tensor) -> Tensor:
        """log q₀((w − loc)/scale) − Σ log scale, one value per draw."""
        return self.noise_log_prob((value - self.loc) / self.scale) - self.log_scale.sum()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − Σ log scale (FORMULAS 2.1)."""
        return self.noise_neg_entropy() - self.log_scale.sum()


class LogGamma(LocationScale):
    """w = loc + ξ, ξ = log Gamma(k, 1) − ψ(k), so that loc is the mean; k is the fixed `concentration`.

    Of the two laws called log-gamma this is definition (i), w = log θ + log Gamma(k, 1) with log θ = loc − ψ(k), on
    the whole line; definition (ii), an exponential, is the family `exp_gamma`. It is a location family: the scale is 1
    and the spread √ψ₁(k) is fixed at the start, so E log q does not depend on the parameters. Skewed to the left.
    """

    name = "log_gamma"
    constants: ClassVar = {"scale": 1.0}

    def __init__(self, centre: Tensor, concentration: Tensor) -> None:
        super().__init__(centre, torch.zeros_like(centre))
        self.concentration = concentration
        self.law = laws.LogGamma(concentration)

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, concentration: float | None = None) -> Start:  # type: ignore[override]
        """k: `concentration`, or the one with std = `init_std` × root mean square of the tensor."""
        if concentration is None:
            std = positive("init_std", init_std) * root_mean_square(like)
            concentration = inverse_trigamma(std**2)
        k = positive("concentration", concentration)
        return Start({}, {"concentration": like.new_full((), k)})
