"""Counts that vary more than Poisson's."""

from typing import Any

import torch
from torch import Tensor, nn

from bayesify.laws.special import betainc
from bayesify.likelihoods.base import Likelihood, log_of_option
from bayesify.likelihoods.poisson import check_counts
from bayesify.likelihoods.shapes import at_least_float32, sum_over_example


class NegativeBinomial(Likelihood):
    """p(y | log_rate) = Γ(y + r) / (Γ(r) y!) (r / (r + rate))^r (rate / (r + rate))^y, r = 1 / dispersion.

    Counts of mean rate = exp(log_rate) and variance rate + dispersion · rate²: Poisson's, whose rate is gamma
    distributed with relative variance `dispersion`. The network gives the logarithm of the rate.

    dispersion:       0.1 is nearly Poisson's for rates below 10
    learn_dispersion: make it a parameter of the model, started at the value given
    """

    name = "negative_binomial"
    task = "regression"
    is_discrete = True
    log_dispersion: Tensor

    def __init__(self, dispersion: float = 1.0, learn_dispersion: bool = True) -> None:
        super().__init__()
        self.learn_dispersion = learn_dispersion
        self.learned = ("dispersion",) * learn_dispersion
        log = log_of_option("dispersion", dispersion)
        if learn_dispersion:
            self.log_dispersion = nn.Parameter(log)
        else:
            self.register_buffer("log_dispersion", log)

    @property
    def dispersion(self) -> Tensor:
        """(variance − mean) / mean²."""
        return self.log_dispersion.exp()

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return check_counts(self.name, output, target, values)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """In float64 where there is one: of large counts it is a small difference."""
        y = target if target.device.type == "mps" else target.double()
        log_rate, log_r = output.to(y.dtype), -self.log_dispersion.to(y.dtype)
        r, log_sum = log_r.exp(), torch.logaddexp(log_rate, log_r)
        each = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        each = each + r * (log_r - log_sum) + y * (log_rate - log_sum)
        return sum_over_example(each.to(at_least_float32(output).dtype))

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        rate = at_least_float32(output).exp()
        return rate, rate + self.dispersion.to(rate.dtype) * rate.square()

    @property
    def options(self) -> dict[str, Any]:
        return {"dispersion": float(self.dispersion.detach()), "learn_dispersion": self.learn_dispersion}

    def cdf(self, output: Tensor, value: Tensor) -> Tensor:
        """I_p(r, k + 1), p = r / (r + rate), k the whole number below `value`."""
        count = value.floor()
        log_r = -self.log_dispersion.detach().double()
        p = torch.sigmoid(log_r - output.double())
        found = betainc(log_r.exp().expand_as(p), count.double().clamp_min(0) + 1, p)
        return torch.where(count < 0, 0.0, found.to(at_least_float32(output).dtype))
