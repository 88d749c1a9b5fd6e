"""A linearised network with draws that were made once: f(w̄) + J (w − w̄)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.passes.jacobian import tangent
from bayesify.predict.fixed_draws import Part, Parts, _traced
from bayesify.predict.prediction import _chunk
from bayesify.torch_internals import pytree
from bayesify.weights import Call, find_slots
from bayesify.weights.dotted_names import put

Moves = dict[str, Tensor]  # w − w̄ of n draws by name, (n, *shape)


class FixedLinear(nn.Module):
    """Networks at their mean weights w̄, one for each member, and moves from there. f(w̄) is computed
    once for all moves of a member.

    moves: of every member, with mean 0 where there are several: the mean of its draws is f(w̄)
    pick:  what the prediction is in what the network returns
    """

    stored = False
    ready = True  # nothing depends on the shapes of an input

    def __init__(self, nets: Sequence[nn.Module], moves: Sequence[Moves], pick: Callable[[Any], Any]) -> None:
        super().__init__()
        self.nets, self.pick, self.vmap_refusal = nn.ModuleList(nets), pick, ""
        self.moves = nn.ModuleList(nn.Module() for _ in moves)
        self.rows = [
            {name: put(own, name, rows) for name, rows in each.items()}
            for own, each in zip(self.moves, moves, strict=True)
        ]
        self.slots = [{name: find_slots(net)[name] for name in moves[0]} for net in nets]
        self.each = len(next(iter(moves[0].values())))
        self.num_draws = self.each * len(nets)
        self.matched = self.each > 1  # of one draw the variance is an estimate
        random = [Part(name, rows[0].numel()) for name, rows in moves[0].items()]
        self.selection = Parts(random, [Part(name, p.numel()) for name, p in nets[0].named_parameters()])

    @property
    def posterior(self) -> "FixedLinear":
        """Of the weights: these draws."""
        return self

    def prepare(self, call: Call) -> None:
        """Make what depends on the shapes of an input."""

    def passes(self, call: Call, batched: bool | None) -> int:
        """How often the networks run for one prediction."""
        return len(self.nets) * -(-self.each // self._together(call, batched))

    def outputs(self, call: Call, batched: bool | None) -> Any:
        """(draws, batch, ...): what each draw predicts."""
        parts = [self._of(member, call, batched) for member in range(len(self.nets))]
        return pytree.tree_map(lambda *each: torch.cat(each), *parts)

    def _of(self, member: int, call: Call, batched: bool | None) -> Any:
        """What each draw of a member predicts."""
        net, slots = self.nets[member], self.slots[member]
        centre = {name: places[0].get() for name, places in slots.items()}
        moves = {name: place.get() for name, place in self.rows[member].items()}

        output, of = tangent(net, slots, centre, call, self.pick)

        def one(move: Moves) -> Any:
            return pytree.tree_map(torch.add, output, of(move))

        most = self._together(call, batched)
        if most > 1:
            try:
                return torch.func.vmap(one, chunk_size=most)(moves)
            except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
                if _traced():
                    raise
                self.vmap_refusal = str(error)
        drawn = [one({name: rows[i] for name, rows in moves.items()}) for i in range(self.each)]
        return pytree.tree_map(lambda *each: torch.stack(each), *drawn)

    def _together(self, call: Call, batched: bool | None) -> int:
        """How many draws one pass takes along."""
        if self.vmap_refusal:
            return 1
        return _chunk(self, call, self.each, True if batched is None and _traced() else batched, _traced())
