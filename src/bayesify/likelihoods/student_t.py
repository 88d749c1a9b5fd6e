"""Real targets with outliers: noise with heavy tails."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import laws
from bayesify.execution import can_read_values
from bayesify.likelihoods.base import Likelihood, log_of_option
from bayesify.likelihoods.shapes import (
    TINY,
    at_least_float32,
    lack_of,
    match_real,
    normal_log_prob,
    sum_over_example,
)

REACH, CELLS = 24.0, 4096  # of the table of the distribution function, in asinh z
FAR = 1e15  # in units of the scale


class StudentT(Likelihood):
    """p(y | loc) ∝ (1 + z²/df)^{−(df+1)/2} / scale, z = (y − loc) / scale.

    The variance is scale² df / (df − 2). For df ≤ 2 it is infinite, and so are `.variance`, `.std` and `.entropy` of
    predictions; `.mean` is loc, for df ≤ 1 the median.

    df:                    ν, few for heavy tails; the normal has infinitely many
    scale:                 the width of the noise, in the target's units; its std is larger
    learn_scale, learn_df: make it a parameter of the model, started at the value given; a scale of 1, the default, by
                           `bf.fit` at what the data say
    """

    name = "student_t"
    task = "regression"
    log_scale: Tensor
    log_df: Tensor

    def __init__(
        self, df: float = 4.0, scale: float = 1.0, learn_scale: bool = True, learn_df: bool = False
    ) -> None:
        super().__init__()
        self.learn_scale, self.learn_df = learn_scale, learn_df
        self.learned = ("scale",) * learn_scale + ("df",) * learn_df
        for name, value, learn in (("scale", scale, learn_scale), ("df", df, learn_df)):
            log, key = log_of_option(name, value), f"log_{name}"
            self.register_parameter(key, nn.Parameter(log)) if learn else self.register_buffer(key, log)
        self.from_data = bool(learn_scale and scale == 1)

    @property
    def scale(self) -> Tensor:
        """The width of the noise; its std is larger."""
        return self.log_scale.exp()

    @property
    def df(self) -> Tensor:
        """Degrees of freedom: few for heavy tails, infinitely many for the normal."""
        return self.log_df.exp()

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return match_real(output, target, values)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        z = (target - at_least_float32(output)) / self.scale
        # beyond FAR, where z² may overflow, p falls by the power df + 1 of z
        beyond = (self.df + 1) * (z.abs().clamp_min(FAR) / FAR).log()
        near = laws.StudentT(self.df).log_prob(z.clamp(-FAR, FAR))
        return sum_over_example(near - beyond - self.log_scale)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        output, df = at_least_float32(output), self.df
        var = torch.where(df > 2, self.scale.square() * df / (df - 2), math.inf)
        return output, var.to(output.dtype).expand(output.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "df": float(self.df.detach()),
            "scale": float(self.scale.detach()),
            "learn_scale": self.learn_scale,
            "learn_df": self.learn_df,
        }

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """σ² = Var z + scale² df / (df − 2)."""
        if can_read_values() and self.df <= 2:
            raise ValueError(f"objective='gaussian' needs df above 2, for a variance: df={self.df:g}")
        mean, var = self.summarize(output.mean)
        return normal_log_prob(mean, output.var + var, target)

    def start(self, output: Tensor, target: Tensor) -> Tensor | None:
        lack, std = lack_of(output, target, self.scale)
        df = float(self.df)
        width = std * math.sqrt((df - 2) / df) if df > 2.5 else std / 2
        if std > TINY:
            self.log_scale.copy_(log_of_option("scale", width))
        return lack

    def units(self, output: Any, mean: Tensor, std: float) -> Tensor | None:
        return torch.stack([mean, torch.full_like(mean, std)])[None]

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """½ ± ∫₀^w g, w = asinh |z|, between the points of a table by cubics with the slopes g; beyond its end, where
        g falls as e^{−df w}, 1 − g/df. In float64 within 1.3e-11 of scipy's for df of 0.2 to 1e8."""
        z, df = ((value - output) / self.scale).double(), float(self.df.detach())
        step = REACH / CELLS
        integral, slope = (t.to(z.device) for t in _table(df))
        whole = z.abs().asinh()
        w = whole.clamp(max=REACH * (1 - 1e-12)) / step
        i = w.nan_to_num().long()
        s = w - i
        from_left = (1 + 2 * s) * integral[i] + s * step * slope[i]
        from_right = (3 - 2 * s) * integral[i + 1] - (1 - s) * step * slope[i + 1]
        half = (1 - s).square() * from_left + s.square() * from_right
        half = torch.where(whole < REACH, half, 0.5 - slope[-1] / df * (-df * (whole - REACH)).exp())
        return (0.5 + z.sign() * half.clamp(max=0.5)).to(value.dtype)


@lru_cache(maxsize=16)
def _table(df: float) -> tuple[Tensor, Tensor]:
    """∫₀^w g and g at w = 0 … REACH, g the density of asinh z, about as wide for every df; by Simpson's rule, and
    normalised by the sum, since its constant is the difference of two large numbers for large df."""
    w = torch.linspace(0, REACH, 2 * CELLS + 1, dtype=torch.float64)
    g = laws.StudentT(df).log_prob(w.sinh()).exp() * w.cosh()
    cells = (g[:-2:2] + 4 * g[1::2] + g[2::2]) * (REACH / CELLS / 6)
    integral = torch.cat([torch.zeros_like(g[:1]), cells.cumsum(0)])
    total = 2 * (integral[-1] + g[-1] / df)
    return integral / total, g[::2] / total
