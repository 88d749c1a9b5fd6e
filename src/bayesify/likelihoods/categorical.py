"""Classes: one of C per example (or per position of an example)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.base import Likelihood, sum_over_example


class Categorical(Likelihood):
    """p(y = c | logits) = softmax(logits)_c.

    `class_dim` is where the classes stand in the output: 1 as in torch's cross-entropy
    (batch, classes, ...); -1 for transformers' token outputs (batch, tokens, classes).
    Positions whose target is `ignore_index` do not count; `class_weight` (one number per class)
    multiplies each position's log-likelihood.
    """

    name = "categorical"
    task = "classification"
    class_weight: Tensor | None

    def __init__(
        self,
        class_dim: int = 1,
        ignore_index: int = -100,
        class_weight: Tensor | list[float] | None = None,
    ) -> None:
        super().__init__()
        self.class_dim = class_dim
        self.ignore_index = ignore_index
        weight = None if class_weight is None else torch.as_tensor(class_weight, dtype=torch.float32)
        self.register_buffer("class_weight", weight)

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        if output.dim() < 2:
            raise ValueError(
                f"the network's output has shape {tuple(output.shape)}; a categorical likelihood needs "
                f"(batch, classes, ...): use likelihood='bernoulli' for one logit per example"
            )
        classes = output.shape[self.class_dim]
        if target.is_floating_point() and target.shape == output.shape:  # soft labels
            return target
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(
                f"target has dtype {target.dtype}; a categorical likelihood needs class indices "
                f"(torch.long), or probabilities of the output's shape {tuple(output.shape)}"
            )
        wanted = list(output.shape)
        del wanted[self.class_dim]
        if list(target.shape) != wanted:
            raise ValueError(self._shape_message(output, target, wanted))
        if values and target.numel():
            valid = target[target != self.ignore_index]
            if valid.numel() and not (int(valid.min()) >= 0 and int(valid.max()) < classes):
                raise ValueError(
                    f"target holds classes {int(valid.min())} to {int(valid.max())}, but the network has "
                    f"{classes} outputs: classes must lie in 0..{classes - 1}"
                )
        return target.long()

    def _shape_message(self, output: Tensor, target: Tensor, wanted: list[int]) -> str:
        message = f"target has shape {tuple(target.shape)}; for an output {tuple(output.shape)} "
        message += f"it must be {tuple(wanted)}"
        if list(target.shape) == list(output.shape[:-1]):
            message += ": classes stand last here, so use bf.likelihood('categorical', class_dim=-1)"
        elif target.shape == output.shape:
            message += ": it looks one-hot, so use target.argmax(1)"
        return message

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        logits = output.movedim(self.class_dim, 1)
        soft = target.is_floating_point()
        loss = F.cross_entropy(
            logits,
            target.movedim(self.class_dim, 1) if soft else target,
            weight=self.class_weight,
            ignore_index=-100 if soft else self.ignore_index,  # soft labels ignore nothing
            reduction="none",
        )
        return -sum_over_example(loss)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = output.float().log_softmax(self.class_dim)
        probs = log_probs.exp()
        return probs, -(probs * log_probs).sum(self.class_dim)

    @property
    def options(self) -> dict[str, Any]:
        weight = None if self.class_weight is None else self.class_weight.tolist()
        return {"class_dim": self.class_dim, "ignore_index": self.ignore_index, "class_weight": weight}
