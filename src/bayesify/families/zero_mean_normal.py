"""The normal family of mean zero: all that is learned is in the variance (paper 5, eq. 12)."""

import torch
from torch import Tensor

from bayesify.families.base import Start
from bayesify.families.variance import VarianceNormal, open_gates, wide


class ZeroMeanNormal(VarianceNormal):
    """q(w) = N(0, c²): the network's own parameter is the standard deviation, up to its sign."""

    name = "zero_mean_normal"
    about = "normal of mean zero, its std is what the network holds"
    zero_mean = True

    @classmethod
    def init(cls, like: Tensor) -> Start:  # type: ignore[override]
        """Nothing beside the gates."""
        return Start({}, open_gates(like))

    @property
    def loc(self) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(self.centre)

    @property
    def spread(self) -> Tensor:
        return wide(self.centre)

    @property
    def ratio(self) -> Tensor:
        return wide(self.centre.new_zeros(()))
