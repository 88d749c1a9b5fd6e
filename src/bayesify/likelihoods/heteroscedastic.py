"""Real targets whose noise the network predicts too."""

import math
from typing import Any

from torch import Tensor

from bayesify.likelihoods.base import Likelihood, match_shape, sum_over_example


class Heteroscedastic(Likelihood):
    """p(y | mean, log_var) = N(y; mean, exp(log_var)).

    The network has two heads: a pair (mean, log_var), or one tensor whose last dimension holds both,
    means first.
    """

    name = "heteroscedastic"
    task = "regression"

    def heads(self, output: Any) -> tuple[Tensor, Tensor]:
        if isinstance(output, tuple | list) and len(output) == 2:
            return output[0], output[1]
        if not isinstance(output, Tensor) or output.dim() < 2 or output.shape[-1] % 2:
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(
                f"the network's output is {shape}; a heteroscedastic likelihood needs a pair "
                f"(mean, log_var) or an even last dimension (means, then log-variances)"
            )
        mean, log_var = output.chunk(2, dim=-1)
        return mean, log_var

    def check(self, output: Any, target: Tensor, values: bool) -> Tensor:
        mean, _ = self.heads(output)
        return match_shape(mean, target).to(mean.dtype)

    def log_prob(self, output: Any, target: Tensor) -> Tensor:
        mean, log_var = self.heads(output)
        squared = (target - mean).square() * (-log_var).exp()
        return sum_over_example(-0.5 * (squared + log_var + math.log(2 * math.pi)))

    def summarize(self, output: Any) -> tuple[Tensor, Tensor]:
        mean, log_var = self.heads(output)
        return mean.float(), log_var.float().exp()

    @property
    def options(self) -> dict[str, Any]:
        return {}
