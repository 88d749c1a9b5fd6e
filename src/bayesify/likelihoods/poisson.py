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
        return check_counts(self.name, output, target, values)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return _log_prob(output, output, target)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        rate = at_least_float32(output).exp()
        return rate, rate

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Exact: E exp z = exp(E z + Var z/2)."""
        return _log_prob(output.mean, output.mean + 0.5 * output.var, target)

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """Γ(k + 1, rate) / k!, k the whole number below `value`."""
        count = value.floor()
        rate = at_least_float32(output).exp().to(count.dtype)
        return torch.where(count < 0, 0.0, torch.special.gammaincc(count.clamp_min(0) + 1, rate))


def check_counts(name: str, output: Tensor, target: Tensor, values: bool) -> Tensor:
    """As `match_real`, of whole numbers of at least 0."""
    target = match_real(output, target, values)
    if values:
        wrong = (target < 0) | (target != target.round())
        if wrong.any():
            raise ValueError(
                f"target holds {float(target[wrong][0]):g}: a {name} likelihood needs counts, 0, 1, 2, …; use "
                f"likelihood='normal' or 'student_t' for other numbers"
            )
    return target


def _log_prob(log_rate: Tensor, log_mean: Tensor, target: Tensor) -> Tensor:
    """y log_rate − exp(log_mean) − log y!, in float64 where there is one: large counts make it a small difference."""
    y = target if target.device.type == "mps" else target.double()
    each = y * log_rate.to(y.dtype) - log_mean.to(y.dtype).exp() - torch.lgamma(y + 1)
    return sum_over_example(each.to(at_least_float32(log_rate).dtype))
