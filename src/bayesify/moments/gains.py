"""Gains: what the variances of one pass are multiplied by, operation by operation, so that they are right on average.

The entries of an activation share the noise of weights, which variances by entry leave out. Where the covariance of
the outputs (sweep.py) is too dear, as for the pixels of a segmentation, gains make up for it: after every linear map,
average and sum the drawn variance ÷ that of one pass, means over all entries, inputs corrected already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify.checks import Count, NotNegative, check_content, checked
from bayesify.moments.missing import calling_module
from bayesify.moments.registry import spelled
from bayesify.moments.standin import StandIn
from bayesify.moments.values import Moments

_KINDS = {
    "linear": "linear addmm matmul mm bmm __matmul__",
    "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "average": "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean sum "
    "interpolate",
    "sum": "add add_ __add__ __radd__ __iadd__ sub sub_ subtract __sub__ __isub__ rsub __rsub__",
}
#: operations that mix entries -> their kind
KINDS: dict[Any, str] = {operation: kind for kind, names in _KINDS.items() for operation in spelled(names)}


@dataclass(frozen=True)
class Gains:
    """Of the operations of a network, in order: their names, "kind in module", and factors of their variances."""

    names: tuple[str, ...]
    values: tuple[float, ...]
    num_draws: int

    def running(self) -> "Running":
        """For one pass."""
        return Running(self)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"names": list(self.names), "values": list(self.values), "num_draws": self.num_draws}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> "Gains":
        """From what `plain` gave."""
        check_content(
            data, {"names": list[str], "values": list[NotNegative], "num_draws": Count}, "posterior"
        )
        if len(data["names"]) != len(data["values"]):
            raise ValueError("posterior.values must be as many as the names")
        return cls(tuple(data["names"]), tuple(data["values"]), data["num_draws"])

    def __str__(self) -> str:
        span = f"{min(self.values):.2g} to {max(self.values):.2g}" if self.values else "nothing"
        return f"variances have gains of {span}, fitted by {self.num_draws} draws (bf.moments.fit_gains)"


class Running:
    """Goes along with the carriers of one pass and counts operations: here it applies gains."""

    def __init__(self, gains: Gains | None = None) -> None:
        self.gains = gains
        self.count = 0
        self.carriers: list[Any] = []  # weak references to those of the pass

    def let_go(self) -> None:
        """The pass is over: what the network keeps of it is not corrected by what this counts."""
        for reference in self.carriers:
            if (carrier := reference()) is not None:
                carrier.tape = None
        self.carriers.clear()

    def corrected(self, func: Any, args: tuple[Any, ...], result: Any) -> Any:
        """The result of an operation, with its gain where it is one that has some."""
        kind = KINDS.get(func)
        if kind is None or not isinstance(result, Moments):
            return result
        if kind == "sum" and not all(isinstance(arg, StandIn) for arg in args[:2]):
            return result  # with what is not random
        self.count += 1
        return Moments(result.mean, self.factor(self.count - 1, kind, result) * result.var)

    def factor(self, i: int, kind: str, result: Moments) -> float:
        """Of operation number `i`."""
        assert self.gains is not None
        names = self.gains.names
        if i >= len(names) or names[i].partition(" ")[0] != kind:
            there = names[i] if i < len(names) else "the end"
            raise RuntimeError(
                f"gains were fitted to other operations of the network: number {i + 1} is a {kind}, and was {there}. "
                f"Call bf.moments.fit_gains(model, loader) again with inputs like these, or take the gains back, "
                f"bf.moments.fit_gains(model, None)"
            )
        return self.gains.values[i]


class Drawn(Running):
    """Mean and variance of every operation's result over passes with drawn weights (Welford)."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.means: list[Tensor] = []
        self.squares: list[Tensor] = []  # summed about the mean
        self.num_passes = 0

    def begin(self) -> "Drawn":
        """Another pass."""
        self.num_passes, self.count = self.num_passes + 1, 0
        return self

    def factor(self, i: int, kind: str, result: Moments) -> float:
        value = result.mean.detach()
        if self.num_passes == 1:
            self.names.append(f"{kind} in {calling_module()}")
            self.means.append(value.clone())
            self.squares.append(torch.zeros_like(value))
            return 1.0
        change = value - self.means[i]
        self.means[i] += change / self.num_passes
        self.squares[i] += change * (value - self.means[i])
        return 1.0

    def variances(self) -> list[float]:
        """Means over all entries."""
        return [s.double().mean().item() / (self.num_passes - 1) for s in self.squares]


class Fitting(Running):
    """Gives every operation the gain that brings its mean variance to the drawn one."""

    def __init__(self, drawn: list[float]) -> None:
        super().__init__()
        self.drawn = drawn
        self.own: list[float] = []  # mean variances before

    def factor(self, i: int, kind: str, result: Moments) -> float:
        self.own.append(result.var.double().mean().item())
        return gain(self.drawn[i], self.own[i])


def gain(drawn: float, own: float) -> float:
    """1 where nothing is random."""
    return drawn / own if drawn > 0 and own > 0 else 1.0


@checked
def fit_gains(
    model: Any, loader: Iterable[Any] | None, num_draws: Count = 128, num_examples: Count = 32, seed: int = 0
) -> dict[str, float] | None:
    """Bring the variances of one pass to those of drawn weights, on average over each operation's entries.

    For density propagation where no covariance of the outputs is found: `covariance="diagonal"`, and more outputs of
    an example than a sweep is made for (segmentation). `model(x)`, `predict` and `bf.export` use them in eval mode,
    `bf.save` stores them. Fit them after training: to train on drops them. Calling it again fits anew; None in place
    of the loader takes them back. Single outputs stay off by a factor, both ways: the covariance of the outputs, where
    it can be had, is better, and `bf.diagnostics.moment_check` says how good either is.

    loader:       training inputs, (input, target) pairs or dicts; one tensor or dict of inputs will do
    num_draws:    of the weights, each about two passes of the network
    num_examples: how many of the loader's first examples are used

    Returns the gains by operation (of an ensemble, those of its first member).

    >>> bf.moments.fit_gains(model, train_loader)
    """
    posterior = getattr(model, "posterior", None)
    if getattr(posterior, "sampling", None) != "moments":
        name = type(model).__name__ if posterior is None else f"method {model.method.name!r}"
        raise TypeError(
            f"fit_gains corrects the variances of one pass, and {name} has no such pass: it is for "
            f"bf.DensityPropagation, or bf.DeepEnsemble of it"
        )
    return model.fit_gains(loader, num_draws, num_examples, seed)
