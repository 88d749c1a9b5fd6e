"""The normal family with a mean and a standard deviation of its own for each weight (paper 5, eq. 20)."""

import math

import torch
from torch import Tensor

from bayesify.families.base import Start
from bayesify.families.location_scale import root_mean_square
from bayesify.families.variance import VarianceNormal, open_gates, wide


class Additive(VarianceNormal):
    """q(w) = N(c, σ²), the free parameter is log σ: the normal family with the gates of variance networks.

    With the log-uniform prior it is sparse variational dropout (Molchanov et al. 2017), log α = log σ² − log c².
    """

    name = "additive"
    about = "normal, mean and std of each weight apart (sparse variational dropout)"

    def __init__(self, centre: Tensor, log_std: Tensor, mean_gate: Tensor, noise_gate: Tensor) -> None:
        super().__init__(centre, mean_gate, noise_gate)
        self.log_std = log_std

    @classmethod
    def init(cls, like: Tensor, init_log_alpha: float = -5.0) -> Start:  # type: ignore[override]
        """σ² = α × the mean square of the tensor, one number."""
        start = 0.5 * init_log_alpha + math.log(root_mean_square(like))
        return Start({"log_std": torch.full_like(like, start)}, open_gates(like))

    @property
    def spread(self) -> Tensor:
        return wide(self.log_std).exp()

    @property
    def ratio(self) -> Tensor:
        return wide(self.centre).abs() * (-wide(self.log_std)).exp()
