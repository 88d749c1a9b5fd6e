"""Classes: one of C per example (or per position of an example)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods.base import Likelihood, at_least_float32, sum_over_example


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
        if target.is_floating_point() and target.shape == output.shape:
            return self._check_soft(target, values)
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(
                f"target has dtype {target.dtype}; a categorical likelihood needs class indices "
                f"(torch.long), or probabilities of the output's shape {tuple(output.shape)}"
            )
        wanted = list(output.shape)
        del wanted[self.class_dim]
        if list(target.shape) != wanted:
            raise ValueError(self._shape_message(output, target, wanted))
        target = target.long()
        if values and target.numel():
            # one reading of the device; ignored positions count as class 0
            low, high = torch.stack(target.where(target != self.ignore_index, 0).aminmax()).tolist()
            if low < 0 or high >= classes:
                raise ValueError(
                    f"target holds classes {low} to {high}, but the network has {classes} outputs: "
                    f"classes must lie in 0..{classes - 1}"
                )
        return target

    def _check_soft(self, target: Tensor, values: bool) -> Tensor:
        if values:
            sums = target.sum(self.class_dim)
            if not (target >= 0).all() or not torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
                raise ValueError(
                    "target is floating-point, so it holds class probabilities, but they are not all "
                    "non-negative with sum 1: use likelihood='bernoulli' for several labels at once"
                )
        return target

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
            weight=None if self.class_weight is None else self.class_weight.to(logits.dtype),
            ignore_index=-100 if soft else self.ignore_index,  # soft labels ignore nothing
            reduction="none",
        )
        return -sum_over_example(loss)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        probs = at_least_float32(output).softmax(self.class_dim)
        return probs, torch.special.entr(probs).sum(self.class_dim)

    @property
    def options(self) -> dict[str, Any]:
        weight = None if self.class_weight is None else self.class_weight.tolist()
        return {"class_dim": self.class_dim, "ignore_index": self.ignore_index, "class_weight": weight}
