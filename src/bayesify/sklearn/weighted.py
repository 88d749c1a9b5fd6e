"""A likelihood of targets that carry the weight of their example."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood


class Weighted(Likelihood):
    """log p(y, w | output) = w log p(y | output): an example of weight w counts as w examples.

    Targets are (batch, numbers + 1), the weight last. It stands in the place of `inner` while that is trained.
    """

    name = "weighted"
    is_discrete = True  # its targets are no numbers to be measured or scaled

    def __init__(self, inner: Likelihood) -> None:
        super().__init__()
        self.inner = inner
        self.task, self.learned = inner.task, inner.learned  # type: ignore[misc]
        self.class_dim, self.takes_heads = inner.class_dim, inner.takes_heads  # type: ignore[misc]

    @staticmethod
    def joined(target: Tensor, weight: Tensor) -> Tensor:
        """(batch,) or (batch, numbers), and (batch,), as one tensor."""
        return torch.cat([target.double().reshape(len(target), -1), weight.double()[:, None]], 1)

    def check(self, output: Any, target: Tensor, values: bool) -> Tensor:
        return self.joined(self.inner.matched(output, self._target(target), values), target[:, -1])

    def log_prob(self, output: Any, target: Tensor) -> Tensor:
        return self._times(self.inner.per_example, output, target)

    def summarize(self, output: Any) -> tuple[Tensor, Tensor]:
        return self.inner.summarize(output)

    @property
    def options(self) -> dict[str, Any]:
        return self.inner.options

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """That of `inner`, times w."""
        return self._times(lambda z, y: self.inner.expected_log_prob(z, y, logits), output, target)

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """That of `inner`, times w."""
        return self._times(lambda z, y: self.inner.gaussian_log_prob(z, y, var_floor), output, target)

    def curvature_root(self, output: Any, target: Tensor, columns: Tensor) -> Tensor:
        """√w times that of `inner`."""
        root = self.inner.curvature_root(output, self._target(target), columns)
        return target[:, -1:].sqrt().to(root) * root

    def _times(self, log_prob: Callable[[Any, Tensor], Tensor], output: Any, target: Tensor) -> Tensor:
        found = log_prob(output, self._target(target))
        return target[:, -1].to(found) * found

    def _target(self, joined: Tensor) -> Tensor:
        """As `inner` takes it: a class, or a row of numbers."""
        is_class = self.task == "classification" and joined.shape[1] == 2
        return joined[:, 0].long() if is_class else joined[:, :-1].float()
