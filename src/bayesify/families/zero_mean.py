"""Families of the form w = scale · ξ with ξ symmetric about zero."""

import math

import torch
from torch import Tensor

from bayesify import laws
from bayesify.families.base import Start, positive
from bayesify.families.scale import Scale, starting_floor

FLOOR = 1e-8  # of a std, far below that of any weight in use


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
        return math.sqrt(self.law.variance())

    @property
    def sign(self) -> None:  # type: ignore[override]
        """None: w has both."""
        return None

    def transform(self, noise: Tensor) -> Tensor:
        """w = scale ξ."""
        return self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w) = log q₀(w/scale) − log scale."""
        return self.noise_log_prob(value / self.scale) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        """0."""
        return torch.zeros_like(self.centre)


class ZeroMeanError(ZeroMean):
    """w = scale ξ, the error family at loc = 0 (Table 1 of the paper, a = 0); a pretrained network loses its signs."""

    name = "zero_mean_error"

    def __init__(self, centre: Tensor, floor: Tensor, tail: float) -> None:
        super().__init__(centre, floor)
        self.tail = tail
        self.law = laws.Error(tail)

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, tail: float = 1.0) -> Start:  # type: ignore[override]
        """The floor, and the shape c = `tail`. `init_std` changes nothing."""
        return Start({}, {**super().init(like, init_std).fixed, "tail": positive("tail", tail)})


class SmallFloor(ZeroMean):
    """A zero-mean family whose std is that of the centre but for a floor that only keeps its logarithm finite."""

    @classmethod
    def init(cls, like: Tensor) -> Start:  # type: ignore[override]
        """The floor."""
        return Start({}, {"floor": like.new_full((), FLOOR)})


class ZeroMeanUniform(SmallFloor):
    """w = scale ξ, ξ uniform on (−1, 1); the std is |c|."""

    name = "zero_mean_uniform"
    law = laws.Uniform()


class ZeroMeanBernoulli(SmallFloor):
    """w = ±scale, each sign with probability ½; the std is |c|.

    It has no density: `log_prob` is that of the sign less log scale, so a KL to a density is one up to a constant.
    """

    name = "zero_mean_bernoulli"
    law = laws.RandomSign()
