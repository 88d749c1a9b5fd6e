"""Counts: 0, 1, 2, …"""

from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import at_least_float32, match_real, sum_over_example


class Poisson(Likelihood):
    """p(y | log_rate) = rate^y e^{−rate} / y!, rate = exp(log_rate): its mean and its variance.

    The network gives the logarithm of the rate. Counts are not standardised.
    """

    name = "poisson"
    task = "regression"
    is_discrete = True

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        target = match_real(output, target, values)
        if values:
            wrong = (target < 0) | (target != target.round())
            if wrong.any():
                raise ValueError(
                    f"target holds {float(target[wrong][0]):g}: a poisson likelihood needs counts, 0, 1, 2, …; use "
                    f"likelihood='normal' or 'student_t' for other numbers"
                )
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        log_rate = at_least_float32(output)
        return sum_over_example(target * log_rate - log_rate.exp() - torch.lgamma(target + 1))

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        rate = at_least_float32(output).exp()
        return rate, rate

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Exact: E exp z = exp(E z + Var z/2)."""
        rate = (output.mean + 0.5 * output.var).exp()
        return sum_over_example(target * output.mean - rate - torch.lgamma(target + 1))

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """Γ(k + 1, rate) / k!, k the whole number below `value`."""
        count = value.floor()
        rate = at_least_float32(output).exp().to(count.dtype)
        return torch.where(count < 0, 0.0, torch.special.gammaincc(count.clamp_min(0) + 1, rate))
