"""Yes or no, for each output on its own (one logit, or several labels at once)."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.base import Likelihood, at_least_float32, match_shape, sum_over_example


class Bernoulli(Likelihood):
    """p(y = 1 | logit) = sigmoid(logit), outputs independent."""

    name = "bernoulli"
    task = "classification"

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
        probs = logits.sigmoid()
        entropy = -probs * F.logsigmoid(logits) - (1 - probs) * F.logsigmoid(-logits)
        return probs, entropy

    @property
    def options(self) -> dict[str, Any]:
        return {}
