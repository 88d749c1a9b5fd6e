"""Real targets with outliers: noise with exponential tails, whose centre is a median."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.likelihoods.base import Likelihood, log_of_option
from bayesify.likelihoods.shapes import (
    TINY,
    at_least_float32,
    lack_of,
    match_real,
    normal_log_prob,
    sum_over_example,
)


class Laplace(Likelihood):
    """p(y | loc) = exp(−|y − loc| / scale) / (2 scale): absolute errors. Its variance is 2 scale².

    scale:       the mean absolute error, in the target's units
    learn_scale: make it a parameter of the model, started at the value given; a scale of 1, the default, by `bf.fit`
                 at what the data say
    """

    name = "laplace"
    task = "regression"
    log_scale: Tensor

    def __init__(self, scale: float = 1.0, learn_scale: bool = True) -> None:
        super().__init__()
        self.learn_scale = learn_scale
        self.learned = ("scale",) * learn_scale
        log = log_of_option("scale", scale)
        if learn_scale:
            self.log_scale = nn.Parameter(log)
        else:
            self.register_buffer("log_scale", log)
        self.from_data = bool(learn_scale and scale == 1)

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return match_real(output, target, values)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return self._of_error((target - at_least_float32(output)).abs())

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        output = at_least_float32(output)
        return output, (2 * self.scale.square()).to(output.dtype).expand(output.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": float(self.scale.detach()), "learn_scale": self.learn_scale}

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Exact: E |y − z| = σ √(2/π) e^{−d²/2σ²} + d erf(d / σ√2), d = y − E z, σ² = Var z."""
        d, std = target - output.mean, output.var.clamp_min(TINY).sqrt()
        z = d / std
        error = std * math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + d * torch.erf(z / math.sqrt(2))
        return self._of_error(error)

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """σ² = Var z + 2 scale²."""
        return normal_log_prob(output.mean, output.var + 2 * self.scale.square(), target)

    def curvature_root(self, output: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        """The Hessian of |y − z| is 0 wherever there is one; here the Fisher information, 1/scale² of every number."""
        return columns / self.scale.detach()

    def start(self, output: Tensor, target: Tensor) -> Tensor | None:
        lack, std = lack_of(output, target, math.sqrt(2) * self.scale)
        if std > TINY:
            self.log_scale.copy_(log_of_option("scale", std / math.sqrt(2)))
        return lack

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """½ e^z below, 1 − ½ e^{−z} above, z = (y − loc) / scale."""
        z = (value - output) / self.scale
        return 0.5 - 0.5 * z.sign() * torch.expm1(-z.abs())

    def _of_error(self, error: Tensor) -> Tensor:
        return sum_over_example(-error / self.scale - self.log_scale - math.log(2))
