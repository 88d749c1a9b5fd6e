"""Deciding, for every parameter of a network, whether it is random, and saying why not."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from bayesify.weights.calls import Slot
from bayesify.weights.observing.origins import execution_order
from bayesify.weights.observing.watch import layer_of
from bayesify.weights.slots import find_slots, hidden_places
from bayesify.weights.where import Candidate, Where, check_where, kind_of


@dataclass(frozen=True)
class Weight:
    """One parameter and what became of it."""

    name: str
    shape: tuple[int, ...]
    kind: str
    random: bool
    reason: str  # why it stayed deterministic; "" for random ones, until a summary says what they became
    aliases: tuple[str, ...] = ()  # other names of the same (tied) parameter

    @cached_property
    def numel(self) -> int:
        """The number of its entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Selection:
    """Every parameter of a network in registration order, and the places of the random ones."""

    weights: tuple[Weight, ...]
    slots: dict[str, list[Slot]]
    order_rule: str  # how where.input and where.output were decided; "" when nobody asked

    @cached_property
    def random(self) -> list[Weight]:
        """Those that are random."""
        return [weight for weight in self.weights if weight.random]


def select(net: nn.Module, where: Where, example: tuple[Any, ...] | None = None) -> Selection:
    """Apply `where` to every parameter of `net`; frozen and non-floating parameters stay as they are.

    example: positional and keyword arguments of one call and, optionally, what picks the prediction out of its result
    """
    check_where(where)
    slots, hidden = find_slots(net), hidden_places(net)
    first, last, order_rule = _ends(net, where, example)
    aliases: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    weights = []
    for name, parameter in net.named_parameters():
        names = aliases[id(parameter)]
        layers = [layer_of(n) for n in names]
        kind = kind_of(net.get_submodule(layers[0]))
        candidates = [Candidate(n, kind, l in first, l in last) for n, l in zip(names, layers, strict=True)]
        reason = _obstacle(parameter) or ("" if any(map(where, candidates)) else f"not in where={where}")
        if not reason and id(parameter) in hidden:
            raise ValueError(
                f"parameter {name!r} is also kept in {hidden[id(parameter)]!r} of the network, where a random value "
                f"cannot take its place: keep it in a plain list or dict (clone a view), or leave it out with where="
            )
        weights.append(Weight(name, tuple(parameter.shape), kind, not reason, reason, tuple(names[1:])))
    return Selection(tuple(weights), {w.name: slots[w.name] for w in weights if w.random}, order_rule)


def _obstacle(parameter: nn.Parameter) -> str:
    if not parameter.requires_grad:
        return "frozen (requires_grad=False)"
    if not parameter.is_floating_point():
        remedy = "; keep it as a real one and use torch.view_as_complex" if parameter.is_complex() else ""
        return f"not a real floating-point tensor ({parameter.dtype}){remedy}"
    if parameter.numel() == 0:
        return "empty"
    return ""


def _ends(net: nn.Module, where: Where, example: Any) -> tuple[set[str], set[str], str]:
    if not where.ordered:
        return set(), set(), ""
    if example is not None:
        first, last = execution_order(net, *example)
        return first, last, "by running the example"
    matrices = [name for name, p in net.named_parameters() if p.dim() > 1]
    maps = ("linear", "conv")  # whatever they call their weight
    layers = [
        n for name in matrices if kind_of(net.get_submodule(n := layer_of(name))) in maps or "weight" in name
    ]
    if not layers:
        return set(), set(), "no layer with a weight matrix"
    rule = "by registration order (give example= to decide it by running: there may be several output layers)"
    return {layers[0]}, {layers[-1]}, rule
