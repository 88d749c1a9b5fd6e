"""A network with draws of its weights that were made once: what a frozen predictor runs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.execution import capturing, compiling
from bayesify.predict.compiled import at_once
from bayesify.predict.prediction import _chunk, of_draws
from bayesify.torch_internals import pytree
from bayesify.weights import Call, Slot, call_with, find_slots
from bayesify.weights.dotted_names import put

FEW_OF_ALL = 8  # at most one weight in so many is random: the draws share most of the work before and between


class Part(NamedTuple):
    """A tensor of the network, as far as its size matters."""

    name: str
    numel: int


class Parts(NamedTuple):
    """Which tensors differ between the draws, and all trained ones."""

    random: list[Part]
    weights: list[Part]


class FixedDraws(nn.Module):
    """n passes of one network, each with its own values of the tensors `draws`, which are buffers here.

    Equal values of one tensor are stored once: components of a patched network, weights of an ensemble's member that
    has several draws. All other tensors are in `net`, once. It has the members of a model that `of_draws` and
    `at_once` ask for.

    draws: by name, n values of every tensor that is not the same in all passes
    pick:  what the prediction is in what the network returns
    """

    stored = False
    matched = False  # the variance over these draws is an estimate
    ready = True  # nothing depends on the shapes of an input

    def __init__(
        self, net: nn.Module, draws: Mapping[str, list[Tensor]], num_draws: int, pick: Callable[[Any], Any]
    ) -> None:
        super().__init__()
        self.net, self.pick, self.num_draws = net, pick, num_draws
        self.vmap_refusal = ""
        self.hold(draws)

    def hold(self, draws: Mapping[str, list[Tensor]]) -> None:
        """Take these draws, instead of any before."""
        self.values, self.order = nn.Module(), nn.Module()
        self.rows: dict[str, Slot] = {}
        self.index: dict[str, tuple[list[int], Slot | None]] = {}
        for name, values in draws.items():
            kept, order = _distinct(values)
            self.rows[name] = put(self.values, name, torch.stack(kept))
            ordered = order == list(range(self.num_draws))
            place = None if ordered else put(self.order, name, torch.tensor(order, device=values[0].device))
            self.index[name] = order, place
        everywhere = _places(self.net)
        self.slots = {name: everywhere[name] for name in draws}
        random = [Part(name, values[0].numel()) for name, values in draws.items()]
        fixed = [Part(name, p.numel()) for name, p in self.net.named_parameters() if name not in draws]
        self.selection = Parts(random, random + fixed)
        for name in draws:
            _empty(self.slots[name])

    @property
    def posterior(self) -> "FixedDraws":
        """Of the weights: these draws."""
        return self

    def nets(self, net: nn.Module) -> list[nn.Module]:
        """One, whose tensors are put in for each draw."""
        return [net]

    def by_output(self, call: Call, member: int = 0) -> frozenset[str]:
        """None: all draws were made."""
        return frozenset()

    def prepare(self, call: Call) -> None:
        """Make what depends on the shapes of an input."""

    def stream(self, member: int, num_draws: int, chunk: int, generator: Any = None) -> Iterator[Any]:
        """The draws in order, at most `chunk` at a time, with their number."""
        for start in range(0, self.num_draws, chunk):
            n = min(chunk, self.num_draws - start)
            yield n, {name: self._rows(name, start, n) for name in self.rows}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        """One pass with these values in place."""
        return call_with(net, self.slots, lambda names: weights, call)

    def at_once(self, call: Call, batched: bool | None) -> int:
        """How many draws one pass takes together."""
        if self.vmap_refusal or self.num_draws == 1:
            return 1
        few = FEW_OF_ALL * sum(p.numel for p in self.selection.random) <= sum(
            p.numel for p in self.selection.weights
        )
        if batched is None and _traced():
            batched = few or None
        return _chunk(self, call, self.num_draws, batched, _traced())

    def passes(self, call: Call, batched: bool | None) -> int:
        """How often the network runs for one prediction."""
        return -(-self.num_draws // self.at_once(call, batched))

    def outputs(self, call: Call, batched: bool | None) -> Any:
        """(draws, batch, ...): what each draw predicts."""
        if not _traced():
            parts = [*of_draws(self, call, 0, self.num_draws, batched)]
        else:
            chunks = self.stream(0, self.num_draws, self.at_once(call, batched))
            parts = [at_once(self, 0, n)(call.args, dict(call.kwargs), weights) for n, weights in chunks]
        return parts[0] if len(parts) == 1 else pytree.tree_map(lambda *each: torch.cat(each), *parts)

    def _rows(self, name: str, start: int, n: int) -> Tensor:
        values, (order, place) = self.rows[name].get(), self.index[name]
        if place is None:
            return values[start : start + n]
        if n == 1:
            return values[order[start] : order[start] + 1]
        return values[place.get()[start : start + n]]


def _traced() -> bool:
    """Is this being compiled, exported or recorded? Then nothing may look at what happens, or at values."""
    return compiling() or capturing()


def _distinct(values: list[Tensor]) -> tuple[list[Tensor], list[int]]:
    """The different ones among `values`, and which of them each one is."""
    kept: list[Tensor] = []
    order: list[int] = []
    seen: dict[float, list[int]] = {}
    for value in values:
        alike = seen.setdefault(float(value.double().sum()), [])
        found = next((i for i in alike if torch.equal(kept[i], value)), None)
        if found is None:
            found = len(kept)
            kept.append(value)
            alike.append(found)
        order.append(found)
    return kept, order


def _places(net: nn.Module) -> dict[str, list[Slot]]:
    """Of every parameter and buffer, by its name."""
    buffers = {
        f"{path}.{key}" if path else key: [Slot(module, "_buffers", key)]
        for path, module in net.named_modules()
        for key in module._buffers
    }
    return buffers | find_slots(net)


def _empty(slots: list[Slot]) -> None:
    """What is put in for every draw needs no memory beside the draws."""
    held = slots[0].get()
    nothing = held.new_empty(0)
    if isinstance(held, nn.Parameter):
        nothing = nn.Parameter(nothing, requires_grad=False)
    for slot in slots:
        slot.set(nothing)
