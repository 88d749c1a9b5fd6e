"""Which parameters become random: small predicates, combined with ``|``, ``&`` and ``~``.

bf.where.norm | bf.where.output          every normalisation layer and the last layer
bf.where.linear & ~bf.where.output       linear layers but the last
bf.where.matching("lora")                every parameter whose name holds "lora"
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Candidate:
    """One parameter of a network, as a `Where` sees it."""

    name: str
    kind: str  # "linear", "conv", "norm", "embedding", "recurrent" or "other"
    first: bool = False  # belongs to the first parameterized layer in execution order
    last: bool = False  # belongs to the last one


@dataclass(frozen=True)
class Where:
    """A choice of parameters. `text` is how a user writes it."""

    text: str
    test: Callable[[Candidate], bool]
    ordered: bool = False  # asks for the order of execution

    def __call__(self, candidate: Candidate) -> bool:
        return self.test(candidate)

    def __or__(self, other: "Where") -> "Where":
        return Where(
            f"({self.text} | {other.text})", lambda c: self(c) or other(c), self.ordered or other.ordered
        )

    def __and__(self, other: "Where") -> "Where":
        return Where(
            f"({self.text} & {other.text})", lambda c: self(c) and other(c), self.ordered or other.ordered
        )

    def __invert__(self) -> "Where":
        return Where(f"~{self.text}", lambda c: not self(c), self.ordered)

    def __repr__(self) -> str:
        return self.text


def matching(pattern: str) -> Where:
    """Parameters whose full name holds a match of the regular expression `pattern`."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"where.matching: {pattern!r} is not a regular expression ({error})") from None
    return Where(f"matching({pattern!r})", lambda c: compiled.search(c.name) is not None)


def named(names: frozenset[str]) -> Where:
    """Exactly these names: how a saved file says what was random."""
    return Where(f"named({len(names)} parameters)", lambda c: c.name in names)


all = Where("all", lambda c: True)
linear = Where("linear", lambda c: c.kind == "linear")
conv = Where("conv", lambda c: c.kind == "conv")
norm = Where("norm", lambda c: c.kind == "norm")
input = Where("input", lambda c: c.first, ordered=True)
output = Where("output", lambda c: c.last, ordered=True)

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORM = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)


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
    if re.search(r"(Linear|Dense|^Conv1D)$", name):
        return "linear"
    return "other"
