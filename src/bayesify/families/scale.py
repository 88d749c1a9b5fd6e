"""Families of magnitudes, of the form |w| = scale · ξ with ξ > 0; each weight keeps its sign."""

import torch
from torch import Tensor

from bayesify.families.base import Family, Start
from bayesify.families.location_scale import root_mean_square
from bayesify.features import power

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
        """The sign of every weight and the floor. The ratio of std and mean is fixed by the law of ξ."""
        floor = torch.full((), FLOOR * root_mean_square(like), dtype=like.dtype, device=like.device)
        return Start({}, {"negative": like < 0, "floor": floor})

    @property
    def magnitude(self) -> Tensor:
        """|E w|: the centre's magnitude, kept away from zero."""
        return (self.centre.square() + self.floor.square()).sqrt()

    @property
    def scale(self) -> Tensor:
        return self.magnitude / self.typical

    @property
    def typical(self) -> float | Tensor:
        """E ξ, by which the scale is set so that the mean is the centre."""
        mean = self.expectation(power(1))
        assert mean is not None
        return mean

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
        inside = noise > 0
        density = self.noise_log_prob(torch.where(inside, noise, 1.0)) - self.scale.log()
        return torch.where(inside, density, -torch.inf)

    @property
    def mean(self) -> Tensor:
        first = self.expectation(power(1))
        assert first is not None
        return self.sign * self.scale * first

    @property
    def variance(self) -> Tensor:
        first, second = self.expectation(power(1)), self.expectation(power(2))
        assert first is not None and second is not None
        return self.scale.square() * (second - first**2)

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − log scale, summed (FORMULAS 2.1)."""
        return self.shape.numel() * self.noise_neg_entropy() - self.scale.log().sum()
