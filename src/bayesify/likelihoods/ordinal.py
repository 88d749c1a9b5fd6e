"""Classes in an order: bad, middling, good."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import at_least_float32


class Ordinal(Likelihood):
    """P(y ≥ k) = σ(z_k), k = 1 … K − 1, with cumulative logits z_1 = o_1 and z_k = z_{k−1} − softplus(o_k).

    The network gives K − 1 numbers o for K classes: one says how far up, the others how far the thresholds are apart.
    Where their weights are 0 that is McCullagh's proportional odds, with thresholds that are the same for all inputs.

    McCullagh, "Regression models for ordinal data", JRSS B 1980.
    """

    name = "ordinal"
    task = "classification"

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        if output.dim() != 2 or target.shape != output.shape[:1] or target.is_floating_point():
            raise ValueError(
                f"the network's output has shape {tuple(output.shape)}, the target {tuple(target.shape)}, "
                f"{target.dtype}: an ordinal likelihood of K classes needs (batch, K − 1) and whole numbers (batch,)"
            )
        if values and target.numel() and not 0 <= target.min() <= target.max() <= output.shape[1]:
            raise ValueError(
                f"target holds classes {int(target.min())} to {int(target.max())}, but {output.shape[1]} outputs are "
                f"for {output.shape[1] + 1}: classes must lie in 0..{output.shape[1]}"
            )
        return target.long()

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return self._log_probs(output).gather(1, target[:, None]).squeeze(1)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        probs = self._log_probs(output).exp()
        return probs, torch.special.entr(probs).sum(1)

    @property
    def options(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def _log_probs(output: Tensor) -> Tensor:
        """(batch, K): log(σ(z_k) − σ(z_{k+1})) = log σ(z_k) + log σ(−z_{k+1}) + log σ(o_{k+1}), as
        1 − e^{−softplus(o)} = σ(o)."""
        o = at_least_float32(output)
        z = torch.cat([o[:, :1], o[:, :1] - F.softplus(o[:, 1:]).cumsum(1)], 1)
        above = F.pad(-F.softplus(-z), (1, 0))
        below = F.pad(-F.softplus(z), (0, 1))
        return above + below + F.pad(-F.softplus(-o[:, 1:]), (1, 1))

    @classmethod
    def num_outputs(cls, num_targets: int) -> int:
        return num_targets - 1
