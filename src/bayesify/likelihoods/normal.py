"""Real targets with one noise level, given or learned."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.noise import standard_normal
from bayesify.likelihoods.base import Likelihood, log_of_option
from bayesify.likelihoods.shapes import (
    TINY,
    at_least_float32,
    lack_of,
    match_real,
    normal_log_prob,
    sum_over_example,
)


class Normal(Likelihood):
    """p(y | mean) = N(y; mean, std²); precision = 1 / std².

    std:       of the noise, in the target's units; left out, it is learned, from 1 on or what the data say (`bf.fit`)
    learn_std: make it a parameter of the model, started at the value given
    """

    name = "normal"
    task = "regression"
    is_normal = True

    def __init__(self, std: float | None = None, learn_std: bool | None = None) -> None:
        super().__init__()
        self.is_left_open = std is None and learn_std is None
        self.learn_std = self.is_left_open or bool(learn_std)
        self.learned = ("std",) if self.learn_std else ()
        log_std = log_of_option("std", 1.0 if std is None else std)
        self.from_data = self.learn_std and std in (None, 1)
        if self.learn_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    @property
    def std(self) -> Tensor:
        return self.log_std.exp()

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return match_real(output, target, values)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        z = (target - at_least_float32(output)) / self.std
        return sum_over_example(-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi))

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        output = at_least_float32(output)
        return output, (2 * self.log_std).exp().to(output.dtype).expand(output.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {"std": float(self.std.detach()), "learn_std": self.learn_std}

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Exact: log N(y; E z, std²) − Var z / (2 std²)."""
        penalty = output.var / (2 * self.std.square())
        return self.log_prob(output.mean, target) - sum_over_example(penalty)

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """σ² = Var z + std²."""
        return normal_log_prob(output.mean, output.var + self.std.square(), target)

    def curvature_root(self, output: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        """The Hessian is 1/std² in every number."""
        return columns / self.std.detach()

    def average_log_prob(
        self, mean: Tensor, std: Tensor, target: Tensor, num_draws: int, generator: Generator | None
    ) -> Tensor:
        """From the mean and the variance of the draws, for any M: mean (y − z_i)² = (y − z̄)² + std² χ²_{M−1}/M."""
        shape = tuple(mean.shape)
        centre = mean + std * standard_normal(shape, mean, generator) / math.sqrt(num_draws)
        spread = std.square() * chi_squared(num_draws - 1, shape, mean, generator) / num_draws
        return self.log_prob(centre, target) - sum_over_example(spread / (2 * self.std.square()))

    def start(self, output: Tensor, target: Tensor) -> Tensor | None:
        lack, std = lack_of(output, target, self.std)
        if std > TINY:
            self.log_std.copy_(log_of_option("std", std))
        return lack

    def units(self, output: Any, mean: Tensor, std: float) -> Tensor | None:
        return torch.stack([mean, torch.full_like(mean, std)])[None]

    def pooled(self, others: Sequence[Likelihood]) -> Likelihood:
        """std² = 1/M Σ_m std_m², which leaves the predictive mean and variance those of the average."""
        variances = [each.options["std"] ** 2 for each in (self, *others)]
        return Normal(math.sqrt(sum(variances) / len(variances)), self.learn_std)
