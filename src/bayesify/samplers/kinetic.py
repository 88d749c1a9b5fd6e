"""Kinetic energies K(p): how momentum becomes speed."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

Number = float | Tensor


class Kinetic(ABC):
    """A separable, even K. Members, in this order: `velocity`, `slowed`, `curvature`.

    Under exp(−K/T): E p K′(p) = T, and E m K′² = T E m K″ (integration by parts), which is what the
    thermostat holds.
    """

    @abstractmethod
    def velocity(self, p: Tensor, mass: Number) -> Tensor:
        """K′(p) = p / (m w), where w(p) is by how much the mass grows with speed."""

    @abstractmethod
    def slowed(self, rate: Number, p: Tensor, mass: Number) -> Number:
        """rate / w(p): a friction on the speed, as a rate of the momentum."""

    @abstractmethod
    def curvature(self, p: Tensor, mass: Number) -> Number:
        """m K″(p)."""


class Gaussian(Kinetic):
    """K(p) = p² / 2m; w = 1."""

    def velocity(self, p: Tensor, mass: Number) -> Tensor:
        """p / m."""
        return p / mass

    def slowed(self, rate: Number, p: Tensor, mass: Number) -> Number:
        """The rate itself."""
        return rate

    def curvature(self, p: Tensor, mass: Number) -> Number:
        """1."""
        return 1.0


class Hyperbolic(Kinetic):
    """K(p) = m c² (w − 1), w = √(1 + p²/m²c²): relativistic, no coordinate is faster than c (paper 4, eq. 5).

    K′ = p / (m w) and m K″ = w⁻³. The mean square momentum is m K₂(mc²) / K₁(mc²) (Bessel functions).
    """

    def __init__(self, max_speed: Number) -> None:
        self.max_speed = max_speed

    def velocity(self, p: Tensor, mass: Number) -> Tensor:
        """p / (m w)."""
        return p / (mass * self.stretch(p, mass))

    def slowed(self, rate: Number, p: Tensor, mass: Number) -> Tensor:
        """rate / w."""
        return rate / self.stretch(p, mass)

    def curvature(self, p: Tensor, mass: Number) -> Tensor:
        """w⁻³."""
        w = self.stretch(p, mass)
        return 1 / (w * w * w)

    def stretch(self, p: Tensor, mass: Number) -> Tensor:
        """w(p)."""
        z = p / (mass * self.max_speed)
        return torch.sqrt(1 + z * z)


def kinetic(max_speed: Number | None) -> Kinetic:
    """Gaussian without a greatest speed, hyperbolic with one."""
    return Gaussian() if max_speed is None else Hyperbolic(max_speed)
