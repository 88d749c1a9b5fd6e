"""Normal families whose weights share variances: one per row, or one ratio of variance and squared mean per tensor."""

import math

from torch import Tensor

from bayesify.families.base import Start
from bayesify.families.location_scale import Normal, root_mean_square
from bayesify.families.scale import starting_floor


class RowNormal(Normal):
    """q(w_nj) = N(loc_nj, scale_n²): one variance per index n of the first dimension (paper 3, eq. 12)."""

    name = "row_normal"

    def __init__(self, centre: Tensor, log_scale: Tensor) -> None:
        self.row = log_scale
        super().__init__(centre, log_scale.expand(centre.shape))

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """Starting std = `init_std` × root mean square of the tensor, one for each row."""
        start = math.log(init_std * root_mean_square(like))
        shape = (*like.shape[:1], *(1,) * (like.dim() - 1))  # (rows, 1, ...)
        return Start({"log_scale": like.new_full(shape, start)})

    @property
    def variance(self) -> Tensor:
        """An expanded view: rules that sum over a row see that it is constant there."""
        return (2 * self.row).exp().expand(self.loc.shape)


class RatioNormal(Normal):
    """q(w) = N(loc, α (loc² + floor²)), one α for the tensor; by the floor a weight of zero has a finite KL."""

    name = "ratio_normal"
    moves = False

    def __init__(self, centre: Tensor, log_alpha: Tensor, floor: Tensor) -> None:
        self.log_alpha = log_alpha
        self.floor = floor
        super().__init__(centre, 0.5 * (log_alpha + (centre.square() + floor.square()).log()))

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """α = `init_std`², and the floor."""
        return Start(
            {"log_alpha": like.new_full((), 2 * math.log(init_std))}, {"floor": starting_floor(like)}
        )

    @property
    def variance(self) -> Tensor:
        """α (loc² + floor²)."""
        return self.log_alpha.exp() * (self.loc.square() + self.floor.square())


#: `variance=` of density propagation
SHARINGS: dict[str, type[Normal]] = {"weight": Normal, "row": RowNormal, "layer": RatioNormal}
