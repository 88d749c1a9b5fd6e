"""Functions of a weight or of its base noise that log-densities are sums of."""

from typing import NamedTuple

from torch import Tensor


class Feature(NamedTuple):
    """x^p ("power"), |x|^p ("abs") or (log |x|)^p ("log")."""

    kind: str
    power: float

    def __call__(self, x: Tensor) -> Tensor:
        if self.kind == "power":
            return x**self.power
        return x.abs() ** self.power if self.kind == "abs" else x.abs().log() ** self.power


def power(p: float) -> Feature:
    return Feature("power", p)


def absolute(p: float) -> Feature:
    return Feature("abs", p)


def log(p: float = 1) -> Feature:
    return Feature("log", p)
