"""Real targets with outliers: noise with heavy tails."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import laws
from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import at_least_float32, match_real, sum_over_example

REACH, CELLS = 24.0, 4096  # of the table of the distribution function, in asinh z


class StudentT(Likelihood):
    """p(y | loc) ∝ (1 + z²/df)^{−(df+1)/2} / scale, z = (y − loc) / scale.

    The variance is scale² df / (df − 2). For df ≤ 2 it is infinite, and so are `.variance`, `.std` and `.entropy` of
    predictions; `.mean` is loc, for df ≤ 1 the median. For df well below 1 quantiles and intervals are rough.

    `scale` is in the target's units. With `learn_scale` and `learn_df` they are parameters of the model, started here.
    """

    name = "student_t"
    task = "regression"
    log_scale: Tensor
    log_df: Tensor

    def __init__(
        self, df: float = 4.0, scale: float = 1.0, learn_scale: bool = True, learn_df: bool = False
    ) -> None:
        super().__init__()
        for option, value in (("df", df), ("scale", scale)):
            if not 0 < value < math.inf:
                raise ValueError(f"likelihood {option}={value!r} must be positive and finite")
        self.learn_scale, self.learn_df = learn_scale, learn_df
        self.learned = ("scale",) * learn_scale + ("df",) * learn_df
        for name, value, learn in (("log_scale", scale, learn_scale), ("log_df", df, learn_df)):
            log = torch.tensor(math.log(value))
            self.register_parameter(name, nn.Parameter(log)) if learn else self.register_buffer(name, log)

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
        return sum_over_example(laws.StudentT(self.df).log_prob(z) - self.log_scale)

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

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """½ ± ∫₀^w g, w = asinh |z|, between the points of a table by cubics with the slopes g."""
        z = ((value - output) / self.scale).double()
        step = REACH / CELLS
        integral, slope = (t.to(z.device) for t in _table(float(self.df.detach())))
        w = z.abs().asinh().clamp(max=REACH * (1 - 1e-12)) / step
        i = w.long()
        s = w - i
        from_left = (1 + 2 * s) * integral[i] + s * step * slope[i]
        from_right = (3 - 2 * s) * integral[i + 1] - (1 - s) * step * slope[i + 1]
        half = (1 - s).square() * from_left + s.square() * from_right
        return (0.5 + z.sign() * half).to(value.dtype)


@lru_cache(maxsize=16)
def _table(df: float) -> tuple[Tensor, Tensor]:
    """∫₀^w g and g at w = 0 … REACH, g the density of asinh z, about as wide for every df; by Simpson's rule."""
    w = torch.linspace(0, REACH, 2 * CELLS + 1, dtype=torch.float64)
    g = laws.StudentT(df).log_prob(w.sinh()).exp() * w.cosh()
    cells = (g[:-2:2] + 4 * g[1::2] + g[2::2]) * (REACH / CELLS / 6)
    return torch.cat([torch.zeros_like(g[:1]), cells.cumsum(0)]), g[::2]
