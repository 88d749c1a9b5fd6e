"""Families of the form w = scale · ξ with ξ symmetric about zero."""

import math

import torch
from torch import Tensor

from bayesify.families.base import Start, positive
from bayesify.families.scale import Scale, starting_floor
from bayesify.laws.features import power


class ZeroMean(Scale):
    """w = scale ξ, ξ on the whole line and symmetric, entries independent: a scale family of mean zero, without signs.

    The centre c gives the size of the weight, √(E w²) = √(c² + floor²); the mean is zero, so a pretrained network does
    not predict as before.
    """

    support = "real"
    symmetric = True
    zero_mean = True

    def __init__(self, centre: Tensor, floor: Tensor) -> None:
        self.centre = centre
        self.floor = floor

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """The floor. `init_std` changes nothing: the weight's own size is its standard deviation."""
        positive("init_std", init_std)
        return Start({}, {"floor": starting_floor(like)})

    @property
    def typical(self) -> float:
        """√(E ξ²), by which the scale is set."""
        second = self.expectation(power(2))
        assert isinstance(second, float)
        return math.sqrt(second)

    @property
    def sign(self) -> None:  # type: ignore[override]
        return None

    def transform(self, noise: Tensor) -> Tensor:
        return self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀(w/scale) − log scale."""
        return self.noise_log_prob(value / self.scale) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return torch.zeros_like(self.centre)
