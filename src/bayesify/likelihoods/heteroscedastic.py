"""Real targets whose noise the network predicts too."""

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import (
    TINY,
    at_least_float32,
    lack_of,
    match_real,
    normal_log_prob,
    sum_over_example,
)
from bayesify.moments.values import Moments


class Heteroscedastic(Likelihood):
    """p(y | mean, log_var) = N(y; mean, exp(log_var)).

    The network has two heads: a pair (mean, log_var), or one tensor whose last dimension holds both,
    means first.
    """

    name = "heteroscedastic"
    task = "regression"
    is_normal = True
    takes_heads = True
    from_data = True

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

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Exact: E (y − m)² e^{−l} = ((y − E m)² + Var m) e^{−E l + Var l/2}."""
        if isinstance(output, Moments) and output.cov is not None:  # both heads in one output, correlated
            return super().expected_log_prob(output, target)
        mean, log_var = self._moments(output)
        precision = (0.5 * log_var.var - log_var.mean).exp()
        squared = ((target - mean.mean).square() + mean.var) * precision
        return -0.5 * sum_over_example(squared + log_var.mean + math.log(2 * math.pi))

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """σ² = Var m + E e^l."""
        if isinstance(output, Moments) and output.cov is not None:
            return super().gaussian_log_prob(output, target)
        mean, log_var = self._moments(output)
        return normal_log_prob(mean.mean, mean.var + (log_var.mean + 0.5 * log_var.var).exp(), target)

    def start(self, output: Any, target: Tensor) -> Tensor | None:
        """The log-variance lacks what takes it to that of the noise."""
        mean, log_var = self.heads(output)
        lack, std = lack_of(mean, target, (0.5 * log_var).exp().mean())
        if lack is None or std <= TINY:
            return None
        return torch.cat([lack, 2 * math.log(std) - log_var.double()], -1)

    def units(self, output: Any, mean: Tensor, std: float) -> Tensor | None:
        """log_var + 2 log std."""
        mean = mean.expand(self.heads(output)[0].shape[-1] if isinstance(output, Tensor) else len(mean))
        ones = torch.ones_like(mean)
        heads = torch.stack([mean, std * ones]), torch.stack([2 * math.log(std) * ones, ones])
        return torch.cat(heads, -1)[None] if isinstance(output, Tensor) else torch.stack(heads)

    def _moments(self, output: Any) -> tuple[Moments, Moments]:
        """(mean, log-variance), both with moments."""
        if isinstance(output, Moments):
            (m, l), (m_var, l_var) = output.mean.chunk(2, -1), output.var.chunk(2, -1)
            return Moments(m, m_var), Moments(l, l_var)
        mean, log_var = output
        return mean, log_var

    @classmethod
    def num_outputs(cls, num_targets: int) -> int:
        return 2 * num_targets  # a mean and a log-variance each
