"""Real targets with one noise level, given or learned."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.likelihoods.base import Likelihood, at_least_float32, match_real, sum_over_example


class Normal(Likelihood):
    """p(y | mean) = N(y; mean, std²); precision = 1 / std².

    `std` is in the target's units. With `learn_std` it is a parameter of the model, started there.
    """

    name = "normal"
    task = "regression"

    def __init__(self, std: float = 1.0, learn_std: bool = False) -> None:
        super().__init__()
        if not std > 0:
            raise ValueError(f"likelihood std={std!r} must be positive")
        self.learn_std = learn_std
        log_std = torch.tensor(math.log(std))
        if learn_std:
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
