"""Which parameters become random: small predicates, combined with ``|``, ``&`` and ``~``.

bf.where.norm | bf.where.output          every normalisation layer and the last layer (all heads, where there are more)
bf.where.linear & ~bf.where.output       linear layers but the last
bf.where.matching("lora")                every parameter whose name holds "lora"
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from torch import nn

from bayesify import torch_internals as internals


@dataclass(frozen=True)
class Candidate:
    """One parameter of a network, as a `Where` sees it."""

    name: str
    kind: str  # "linear", "conv", "norm", "embedding", "recurrent" or "other"
    first: bool = False  # belongs to a layer that sees the inputs
    last: bool = False  # belongs to a layer from which the prediction comes with no other in between


@dataclass(frozen=True)
class Where:
    """A choice of parameters. `text` is how a user writes it."""

    text: str
    test: Callable[[Candidate], bool]
    ordered: bool = False  # asks for the order of execution

    def __call__(self, candidate: Candidate) -> bool:
        return self.test(candidate)

    def __or__(self, other: "Where") -> "Where":
        check_where(other)
        test = partial(_either, self, other)
        return Where(f"({self.text} | {other.text})", test, self.ordered or other.ordered)

    def __and__(self, other: "Where") -> "Where":
        check_where(other)
        test = partial(_both, self, other)
        return Where(f"({self.text} & {other.text})", test, self.ordered or other.ordered)

    def __invert__(self) -> "Where":
        return Where(f"~{self.text}", partial(_not, self), self.ordered)

    def __repr__(self) -> str:
        return self.text


def check_where(value: Any) -> None:
    """Raise where `value` is no choice; a text is most likely a name, or a part of one."""
    if not isinstance(value, Where):
        example = f"bf.where.matching({value!r})" if isinstance(value, str) else "bf.where.all"
        raise TypeError(f"where={value!r} must be a choice, e.g. {example}; give other options by name")


# named functions, not lambdas: a model holds its `where`, and models are pickled
def _either(a: Where, b: Where, c: Candidate) -> bool:
    return a(c) or b(c)


def _both(a: Where, b: Where, c: Candidate) -> bool:
    return a(c) and b(c)


def _not(a: Where, c: Candidate) -> bool:
    return not a(c)


def _always(c: Candidate) -> bool:
    return True


def _of_kind(kind: str, c: Candidate) -> bool:
    return c.kind == kind


def _matches(pattern: re.Pattern[str], c: Candidate) -> bool:
    return pattern.search(c.name) is not None


def _named(names: frozenset[str], c: Candidate) -> bool:
    return c.name in names


def matching(pattern: str) -> Where:
    """Parameters whose full name holds a match of the regular expression `pattern`."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"where.matching: {pattern!r} is not a regular expression ({error})") from None
    return Where(f"matching({pattern!r})", partial(_matches, compiled))


def named(names: frozenset[str]) -> Where:
    """Exactly these names: how a saved file says what was random."""
    return Where(f"named({len(names)} parameters)", partial(_named, names))


all = Where("all", _always)
linear = Where("linear", partial(_of_kind, "linear"))
conv = Where("conv", partial(_of_kind, "conv"))
norm = Where("norm", partial(_of_kind, "norm"))
input = Where("input", attrgetter("first"), ordered=True)
output = Where("output", attrgetter("last"), ordered=True)

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORM = (internals.NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


def kind_of(module: Any) -> str:
    """What sort of layer a module is.

    torch's own layers by class; layers of other libraries by the end of their class name
    (`LlamaRMSNorm` is a norm, transformers' `Conv1D` is a linear layer with a transposed weight).
    """
    if isinstance(module, _CONV):
        return "conv"
    if isinstance(module, _NORM):
        return "norm"
    if isinstance(module, nn.Linear | nn.Bilinear | nn.MultiheadAttention):
        return "linear"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return "recurrent"
    name = type(module).__name__
    if re.search(r"Norm(\d?d|2D)?$", name):
        return "norm"
    if re.search(r"Conv(Transpose)?[123]d$", name):
        return "conv"
    if re.search(r"(Linear|Dense|^Conv1D)$", name):
        return "linear"
    return "other"
