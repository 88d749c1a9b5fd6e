"""Real targets whose noise the network predicts too."""

import math
from typing import Any

from torch import Tensor

from bayesify.likelihoods.base import Likelihood, at_least_float32, match_real, sum_over_example


class Heteroscedastic(Likelihood):
    """p(y | mean, log_var) = N(y; mean, exp(log_var)).

    The network has two heads: a pair (mean, log_var), or one tensor whose last dimension holds both,
    means first.
    """

    name = "heteroscedastic"
    task = "regression"

    def heads(self, output: Any) -> tuple[Tensor, Tensor]:
        if isinstance(output, tuple | list) and len(output) == 2:
            mean, log_var = output
            if mean.shape != log_var.shape:
                raise ValueError(
                    f"the heads differ: mean {tuple(mean.shape)}, log_var {tuple(log_var.shape)}; "
                    f"they must have one shape (nothing is broadcast)"
                )
            return mean, log_var
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
        return match_real(mean, target, values)

    def log_prob(self, output: Any, target: Tensor) -> Tensor:
        mean, log_var = (at_least_float32(head) for head in self.heads(output))
        squared = (target - mean).square() * (-log_var).exp()
        return sum_over_example(-0.5 * (squared + log_var + math.log(2 * math.pi)))

    def summarize(self, output: Any) -> tuple[Tensor, Tensor]:
        mean, log_var = self.heads(output)
        return at_least_float32(mean), at_least_float32(log_var).exp()

    @property
    def options(self) -> dict[str, Any]:
        return {}
