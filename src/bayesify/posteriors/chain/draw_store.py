"""What is kept of a chain: the face of stored draws and of running moments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Generator, Tensor

from bayesify.posteriors.base import Chunks

REMEDY = "train longer than the burn-in, or keep the present weights by model.collect()"
#: what a summary says of the draws of one chain
ALONE = "one chain cannot tell whether it missed other modes of the posterior; several can (bf.sample_chains)"
NONE_YET = f"the chain has no draws yet: {REMEDY}"
Weights = dict[str, Tensor]


class DrawKey(NamedTuple):
    """Which draw: the number of its chain, and the chain's step after which it was taken."""

    chain: int
    step: int


class DrawStore(ABC):
    """Members, in this order: `__len__`, `num_chains`, `add`, `draw`, `stream`, `mean`, `variance`, `move_to`,
    `tensors`, `take`.

    Weights may come back in another dtype or on another device than they went in.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many draws were taken."""

    @property
    def num_chains(self) -> int:
        """How many chains they are of."""
        return 1

    @abstractmethod
    def add(self, key: DrawKey, weights: Mapping[str, Tensor]) -> None:
        """Take the weights of `key`; again for the same key: instead of the former."""

    @abstractmethod
    def draw(self, n: int, generator: Generator | None) -> Weights:
        """`n` draws at random: (n, *shape)."""

    @abstractmethod
    def stream(self, num_draws: int, chunk: int, generator: Generator | None, like: Weights) -> Chunks:
        """At most `num_draws` draws for a prediction, `chunk` of them at a time, with their number; of the dtypes
        and on the device of `like`."""

    @abstractmethod
    def mean(self) -> Weights:
        """The average over the draws."""

    @abstractmethod
    def variance(self) -> Weights:
        """The variance over the draws (divisor: their number)."""

    def move_to(self, folder: Path) -> None:  # noqa: B027
        """Keep in `folder` what need not be in memory."""

    @abstractmethod
    def tensors(self, whole: bool) -> dict[str, Tensor]:
        """The state, by keys of its own; `whole`: with what lies in a folder too."""

    @abstractmethod
    def take(self, tensors: Mapping[str, Any]) -> None:
        """The inverse of `tensors`."""
