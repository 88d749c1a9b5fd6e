"""The error family of mean zero."""

from collections.abc import Sequence

from torch import Generator, Tensor

from bayesify.families.base import Start, positive
from bayesify.families.error import (
    error_expectation,
    error_log_prob,
    error_neg_entropy,
    error_noise,
    error_sums,
)
from bayesify.families.zero_mean import ZeroMean
from bayesify.features import Feature


class ZeroMeanError(ZeroMean):
    """The error family at loc = 0, a scale family on the whole line: w = scale ξ (Table 1 of the paper, a = 0)."""

    name = "zero_mean_error"
    about = "w = scale ξ, the error family at loc = 0; a pretrained network loses its weights' signs"

    def __init__(self, centre: Tensor, floor: Tensor, tail: float) -> None:
        super().__init__(centre, floor)
        self.tail = tail

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05, tail: float = 1.0) -> Start:  # type: ignore[override]
        """The floor, and the shape c = `tail`. `init_std` changes nothing."""
        return Start({}, {**super().init(like, init_std).fixed, "tail": positive("tail", tail)})

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        return error_noise(self.tail, (*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return error_log_prob(noise, self.tail)

    def noise_neg_entropy(self) -> float:
        return error_neg_entropy(self.tail)

    def expectation(self, feature: Feature) -> float | None:
        return error_expectation(feature, self.tail)

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        return error_sums(features, n, self.tail, self.centre, generator)
