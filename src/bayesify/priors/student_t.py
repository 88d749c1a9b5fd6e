"""Student's t prior."""

import math
from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, number, positive


class StudentT(Prior):
    """p(w) ∝ (1 + z²/ν)^{−(ν+1)/2}, z = (w − loc)/scale, ν = df; entries independent."""

    name = "student_t"
    about = "Student's t with df degrees of freedom"

    def __init__(self, df: float = 3.0, loc: float = 0.0, scale: float = 1.0) -> None:
        self.df = positive("df", df)
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν) − log s − (ν+1)/2 log(1 + z²/ν)."""
        half = self.df / 2
        constant = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.df)
        z = (value - self.loc) / self.scale
        return constant - math.log(self.scale) - (half + 0.5) * (z.square() / self.df).log1p()

    @property
    def options(self) -> dict[str, Any]:
        return {"df": self.df, "loc": self.loc, "scale": self.scale}
