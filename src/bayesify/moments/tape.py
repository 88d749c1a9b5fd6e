"""Where noise enters a pass, noted for the sweep (sweep.py).

The tape runs the rule of every operation so that the means have a graph, in which variances are constants. It notes
the noise of weights, which all their uses share (shared_noise.py), and what is new in every entry: noise × noise of
two activations, and half of an activation's remainder r = Var y − (E f′)² Var x. The other half goes on along the
slope, √((E f′)² + r / 2 Var x): other positions, made by the same weights, have a part of it in common.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import Carrier, first_carrier, twin_of
from bayesify.moments.norms_in_parts import NORMS, is_weight, norm_in_parts
from bayesify.moments.notes import DIFFERENCES, PRODUCTS, QUOTIENTS, SUMS, note
from bayesify.moments.opposite import linear_map, settled
from bayesify.moments.registry import spelled
from bayesify.moments.rules.exact import relu
from bayesify.moments.rules.gates import GATES, gated
from bayesify.moments.rules.linear import LINEAR_MAPS
from bayesify.moments.rules.product import MATMULS
from bayesify.moments.shared_noise import Use
from bayesify.moments.standin import replace
from bayesify.moments.values import Entries, Moments, Simplex, parts
from bayesify.moments.writing import Storage

ADDMM = frozenset(spelled("addmm"))
DETACHED = frozenset(spelled("detach detach_"))
SHARES = frozenset([*LINEAR_MAPS, F.embedding, *MATMULS])  # weights meet data here, whatever their shape


class Tape:
    """What a pass notes.

    batch:          examples in the pass
    layouts:        where activations have their examples, learned in earlier passes
    differentiable: the covariance will be differentiated. Then means with the tape's graph are carried beside those
                    of the pass (`Carrier.twin`): in the one graph variances are constants, in the other they are not
    half:           the tape's graph is one of bfloat16, beside the pass too
    unseen:         operations on weights whose sharing is left out, of earlier passes too
    """

    def __init__(
        self,
        batch: int,
        layouts: dict[Any, Any],
        differentiable: bool = False,
        half: bool = False,
        unseen: dict[str, None] | None = None,
    ) -> None:
        self.batch = batch
        self.layouts = layouts
        self.differentiable = differentiable
        self.half = half
        self.beside = differentiable or half
        self.noises: list[tuple[Tensor, Tensor]] = []  # the mean where noise enters, and its variance
        self.uses: list[list[Use]] = []  # of each weight
        self.unseen: dict[str, None] = {} if unseen is None else unseen
        self.carriers: list[Any] = []  # weak references to those of the pass
        self.eager = True  # the pass is not part of a compiled graph

    def add_noise(self, mean: Tensor, var: Tensor) -> None:
        """Independent noise of every entry."""
        self.noises.append((mean, var))

    def add_use(self, use: Use) -> None:
        """Of a weight: uses of the same one share its noise."""
        for uses in self.uses:
            if uses[0].key is use.key and type(uses[0]) is type(use):
                uses.append(use)
                return
        self.uses.append([use])

    def take_in(self, kept: Carrier) -> None:
        """A carrier that the network kept from another pass: its noise enters here."""
        kept.tape = self
        self.carriers.append(weakref.ref(kept))
        if not kept.is_weight and not self.beside:
            kept.storage = Storage(self.entered(kept.unpacked()))

    def let_go(self) -> None:
        """The pass is over: carriers that the network keeps hold moments, and nothing of the tape."""
        for reference in self.carriers:
            if (carrier := reference()) is None:
                continue
            carrier.tape = carrier.twin = None
            storage = None if self.differentiable else carrier.storage
            while storage is not None:
                storage.held = type(storage.held)(*map(_without_graph, storage.held))
                storage = storage.whole
        self.carriers.clear()

    def needs_precision(self, function: Any) -> bool:
        """Will a difference of variances be taken?"""
        return function in GATES and function is not relu

    def finds(self, function: Any) -> bool:
        """Does `run` find the moments of the pass itself? Not of what a network computes without gradients."""
        return not self.beside or (function is relu and torch.is_grad_enabled() == self.differentiable)

    def instead(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A carrier of the result where the operation is taken apart, else None: norms into scaling, gain, offset."""
        if func in NORMS:
            return norm_in_parts(func, args, kwargs)
        if func in ADDMM and not kwargs and is_weight(args[2]):
            return F.linear(args[1], args[2].t(), args[0])
        return None

    def entered(self, held: Moments) -> Moments:
        """Moments whose noise begins here, independent in every entry."""
        mean = self.cast(held.mean)
        mean = mean.clone() if mean.requires_grad else mean.detach().requires_grad_()
        self.add_noise(mean, held.var)
        return Moments(mean, self.cast(held.var))

    def cast(self, value: Any) -> Any:
        """In the precision of the tape's graph; for the mean of a pass in single precision that is half of it."""
        return value.to(torch.bfloat16) if self.half and _is_single(value) else value

    def run(
        self,
        func: Any,
        function: Any,
        args: Any,
        kwargs: Any,
        unpack: Callable[[Any], Any],
        known: Any = None,
    ) -> tuple[Any, Any, bool]:
        """The rule's result in the pass and with the tape's graph, and whether it is one of weights alone.

        known: the result in the pass, where the tape does not find it
        """
        if self._of_weights_alone(func, args, kwargs):
            if known is None:
                known = function(*replace(args, Carrier, unpack), **replace(kwargs, Carrier, unpack))
            return known, known, True
        most = max([2, *[c.dim() for c in _carriers((args, kwargs)) if not c.is_weight]])
        entered: list[Carrier] = []
        # rows of a table that data chose (bags of words, table[index]) stand where data do
        looked_up = args[0] if func in LINEAR_MAPS or (func in MATMULS and is_weight(args[1])) else None

        def through(carrier: Carrier) -> Any:
            if carrier.tape is not self:
                self.take_in(carrier)
            if not carrier.is_weight:
                return unpack(twin_of(carrier) if self.beside else carrier)
            data = looked_up if func in SHARES or func is torch.einsum else carrier.dim() >= most
            if (data is True or data is carrier) and carrier.shape[0] == self.batch:
                entered.append(carrier)
                return self.entered(unpack(carrier))  # spread over the examples, as a class token is
            return self._narrowed(unpack(carrier))

        values, named = replace(args, Carrier, through), replace(kwargs, Carrier, through)
        if func in DETACHED:
            return values[0] if known is None else known, values[0], False
        through_values, through_named = replace((values, named), Tensor, self.cast)
        if self.beside:  # what the factors in the graph are made of
            values, named = replace(args, Carrier, unpack), replace(kwargs, Carrier, unpack)
        if function in GATES and (found := gated(function, known, *values, **named)) is not None:
            y, twin = self._gated(through_values[0].mean, values[0], *found)
            return ((y if known is None else known) if self.beside else twin), twin, False
        result = self._through(func, function, through_values, through_named, known, values)
        weights = any(c.is_weight and all(c is not e for e in entered) for c in _carriers((args, kwargs)))
        result = note(self, func, function, args, values, named, result, weights)
        return result if known is None else known, result, False

    def _through(self, func: Any, function: Any, values: Any, named: Any, known: Any, primal: Any) -> Any:
        """The operation with the tape's graph; its variances are those of `known`, or have no graph."""
        if func in LINEAR_MAPS and known is not None:
            result = Moments(linear_map(func, *(parts(v)[0] for v in values), **named), known.var)
        elif func is F.batch_norm and isinstance(values[0], Moments):
            result = self._by_slope(
                values[0].mean, primal[0], function(*values, **named) if known is None else known
            )
        else:
            result = _with_variances(function(*values, **named), known)
        result = replace(result, (Moments, Simplex), self._narrowed) if self.half else result
        if isinstance(result, Moments) and not result.mean.requires_grad:
            result = Moments(leaf(result.mean), result.var)
        return result

    def _by_slope(self, through: Tensor, x: Moments, y: Moments) -> Moments:
        """y of a rule that gave its slope, by the gain that it had: running statistics have moved by now."""
        slope = y.slope
        assert slope is not None
        if not self.differentiable:
            x, y, slope = _constant(x), _constant(y), slope.detach()
        return Moments(self.cast(y.mean) + self.cast(slope) * (through - self.cast(x.mean)), y.var)

    def _narrowed(self, held: Any) -> Any:
        if not self.half or not isinstance(held, Moments | Simplex):
            return held
        if isinstance(held, Simplex):
            return Simplex(self.cast(held.mean), self.cast(held.var), self.cast(held.score_var), held.dropped)
        return Moments(self.cast(held.mean), self.cast(held.var))

    def _of_weights_alone(self, func: Any, args: Any, kwargs: Any) -> bool:
        if any(not carrier.is_weight for carrier in _carriers((args, kwargs))):
            return False
        if func is F.embedding and isinstance(args[0], Tensor):  # of positions, the same for all examples?
            return args[0].dim() == 0 or args[0].shape[0] != self.batch
        if func in SHARES:
            return False
        plain = [x for x in args if isinstance(x, Tensor) and not isinstance(x, Carrier)]
        if func is torch.einsum:
            return not any(self.batch in x.shape for x in plain)
        weight = first_carrier((*args, *kwargs.values()))
        if (
            func in SUMS or func in DIFFERENCES or func in PRODUCTS or func in QUOTIENTS
        ):  # with data that are not random?
            return not any(
                x.dim() > 1 and x.shape[0] == self.batch and x.dim() >= weight.dim() for x in plain
            )
        return True

    def _gated(
        self, through: Tensor, x: Moments, y: Moments, slope: Tensor, own: Tensor
    ) -> tuple[Moments, Moments]:
        """y, and y with `slope` as its derivative by x in the tape's graph."""
        if not self.differentiable:
            x, y, slope, own = _constant(x), _constant(y), slope.detach(), own.detach()
        by = self.cast(slope) if self.differentiable else settled(self.cast(slope))
        mean = self.cast(y.mean) + by * (through - self.cast(x.mean))
        self.add_noise(mean, own)
        return y, Moments(mean, self.cast(y.var))


def _without_graph(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def leaf(mean: Tensor) -> Tensor:
    """`mean` with a graph, that begins here where there is none."""
    return mean if mean.requires_grad else mean.detach().requires_grad_()


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _constant(held: Moments) -> Moments:
    return Moments(held.mean.detach(), held.var.detach())


def _carriers(value: Any) -> list[Carrier]:
    found: list[Carrier] = []
    replace(value, Carrier, found.append)
    return found


def _with_variances(result: Any, known: Any) -> Any:
    """The same means with the variances of `known`, or with their own as constants."""
    if isinstance(result, Entries):
        return Entries(_with_variances(result.values, known and known.values), result.indices)
    if type(result) in (tuple, list):
        others = known or (None,) * len(result)
        return type(result)(_with_variances(one, other) for one, other in zip(result, others, strict=True))
    if isinstance(result, Simplex):
        var, score_var = (result.var.detach(), result.score_var.detach()) if known is None else known[1:3]
        return Simplex(result.mean, var, score_var, result.dropped)
    if isinstance(result, Moments):
        return Moments(result.mean, result.var.detach() if known is None else known.var)
    return result
