"""The error family of mean zero."""

from torch import Tensor

from bayesify.families.base import Start, positive
from bayesify.families.error import ErrorLaw
from bayesify.families.zero_mean import ZeroMean


class ZeroMeanError(ErrorLaw, ZeroMean):
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
