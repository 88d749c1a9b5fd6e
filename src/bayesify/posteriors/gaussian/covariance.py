"""The face of every covariance of the random weights."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Generator, Tensor, nn


class Covariance(nn.Module, ABC):
    """Σ of the random weights, by name. What it is made of are buffers.

    Members, in this order: `deviations`, `variance`, `of_outputs`, `describe`.
    """

    #: `of_outputs` takes J as `bayesify.passes.layerwise.Factored`, too
    factored: bool = False

    @abstractmethod
    def deviations(self, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        """`n` draws of w − E w, by name: (n, *shape)."""

    @abstractmethod
    def variance(self) -> dict[str, Tensor]:
        """The diagonal of Σ, by name."""

    @abstractmethod
    def of_outputs(self, jacobian: Mapping[str, Tensor]) -> Tensor:
        """J Σ Jᵀ of J by name, (batch, outputs, *shape): (batch, outputs, outputs)."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """A few words on what the weight `name` became."""
