"""Yes or no, for each output on its own (one logit, or several labels at once)."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import at_least_float32, match_shape, normal_log_prob, sum_over_example


class Bernoulli(Likelihood):
    """p(y = 1 | logit) = sigmoid(logit), outputs independent."""

    name = "bernoulli"
    task = "classification"
    class_dim = None

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        target = match_shape(output, target).to(output.dtype)
        if values and target.numel() and not (float(target.min()) >= 0 and float(target.max()) <= 1):
            raise ValueError(
                f"target holds values {float(target.min()):g} to {float(target.max()):g}: "
                f"a bernoulli likelihood needs labels (or probabilities) in [0, 1]"
            )
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return -sum_over_example(F.binary_cross_entropy_with_logits(output, target, reduction="none"))

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        logits = at_least_float32(output)
        probs, logits = logits.sigmoid(), logits.clamp(-100, 100)  # 0 · log 0 = 0, of a masked label
        entropy = -probs * F.logsigmoid(logits) - (1 - probs) * F.logsigmoid(-logits)
        return probs, entropy

    def check_probs(self, probs: Tensor, target: Tensor) -> Tensor:
        """As `check`: the logits have the shape of the probabilities."""
        return self.check(probs, target, values=True)

    def curvature_root(self, output: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        """The Hessian is p (1 − p) in every number."""
        p = output.sigmoid().flatten(1)
        return columns * (p * (1 - p)).sqrt()

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """Each label by itself; the bound is −E log p(1) ≤ log(1 + e^{−m + s/2}), and likewise for 0 with m + s/2."""
        if logits == "bound":
            half = 0.5 * output.var
            yes, no = F.logsigmoid(output.mean - half), F.logsigmoid(-output.mean - half)
            return sum_over_example(target * yes + (1 - target) * no)
        log_prob = self.log_prob(output.mean, target)
        if logits == "mean":
            return log_prob
        p = output.mean.sigmoid()
        return log_prob - sum_over_example(0.5 * p * (1 - p) * output.var)

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """With the moments of sigmoid(z) to first order."""
        p = output.mean.sigmoid()
        return normal_log_prob(p, (p * (1 - p)).square() * output.var + var_floor, target)

    @classmethod
    def num_outputs(cls, num_targets: int) -> int:
        if num_targets != 2:
            raise ValueError(f"likelihood='bernoulli' is for two classes, the data have {num_targets}")
        return 1
