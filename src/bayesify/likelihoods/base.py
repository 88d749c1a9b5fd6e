"""The face of every likelihood p(y | network output)."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Likelihood(nn.Module, ABC):
    """Turns a network's output into a distribution over targets.

    Members, in this order in every file of this room: `check`, `log_prob`, `summarize`, `options`.
    """

    name: ClassVar[str]
    task: ClassVar[str]  # "classification" or "regression"

    @abstractmethod
    def check(self, output: Any, target: Tensor, values: bool) -> Tensor:
        """The target as `log_prob` wants it; raises on a wrong shape or dtype, with `values` also on a wrong range."""

    @abstractmethod
    def log_prob(self, output: Any, target: Tensor) -> Tensor:
        """log p(y | output), summed over all but the batch dimension: (batch,)."""

    @abstractmethod
    def summarize(self, output: Any) -> tuple[Tensor, Tensor]:
        """What one draw predicts: (probabilities, entropy) or (mean, variance)."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Plain data that makes this likelihood again: `bf.likelihood(name, **options)`."""

    def nll(
        self, output: Any, target: Tensor, sample_weight: Tensor | None = None, values: bool = True
    ) -> Tensor:
        """Mean negative log-likelihood per example."""
        target = self.check(output, target, values)
        return weighted_nll(self.log_prob(output, target), sample_weight)


def weighted_nll(log_prob: Tensor, sample_weight: Tensor | None) -> Tensor:
    """Mean over examples of −log p, each times its weight: (batch,) -> a scalar."""
    if log_prob.shape[0] == 0:
        raise ValueError("the batch is empty: a loss needs at least one example")
    if sample_weight is not None:
        if sample_weight.shape != log_prob.shape:
            raise ValueError(
                f"sample_weight has shape {tuple(sample_weight.shape)}, but there are "
                f"{log_prob.shape[0]} examples: give one weight per example"
            )
        log_prob = sample_weight * log_prob
    return -log_prob.mean()


def sum_over_example(values: Tensor) -> Tensor:
    """(batch, ...) -> (batch,)."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened; float32 and float64 as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def match_real(output: Tensor, target: Tensor, values: bool) -> Tensor:
    """A real target in the shape of `output`, at least in float32; with `values` it must be finite."""
    target = match_shape(output, target).to(torch.promote_types(output.dtype, torch.float32))
    if values and not target.isfinite().all():
        raise ValueError(f"target holds NaN or infinite values (shape {tuple(target.shape)})")
    return target


def match_shape(output: Tensor, target: Tensor) -> Tensor:
    """`target` in the shape of `output`; sizes of 1 may be added or dropped, nothing is broadcast."""
    if output.shape == target.shape:
        return target
    if [s for s in output.shape if s != 1] == [s for s in target.shape if s != 1]:
        return target.reshape(output.shape)
    raise ValueError(
        f"target has shape {tuple(target.shape)}, the network's output {tuple(output.shape)}: "
        f"they must agree (nothing is broadcast)"
    )
