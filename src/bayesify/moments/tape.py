"""Where noise enters a pass, noted for the sweep (sweep.py).

The tape runs the rule of every operation so that the means have a graph, in which variances are constants. It notes
the noise of weights, which all their uses share (shared_noise.py), and what is new in every entry: noise × noise in a
product, and the remainder Var y − (E f′)² Var x of an activation.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import Carrier, first_carrier, twin_of
from bayesify.moments.missing import calling_module, name_of
from bayesify.moments.norms_in_parts import NORMS, is_weight, norm_in_parts, normed_alike
from bayesify.moments.registry import RULES, spelled
from bayesify.moments.rules.gates import GATES
from bayesify.moments.rules.linear import LINEAR_MAPS, PLAIN_CONVOLUTIONS
from bayesify.moments.rules.product import MATMULS
from bayesify.moments.shared_noise import Convolution, Elementwise, Linear, Lookup, Use
from bayesify.moments.standin import holds, replace
from bayesify.moments.values import Entries, Moments, Simplex, parts

SUMS = frozenset(spelled("add add_ __add__ __radd__ __iadd__"))
DIFFERENCES = frozenset(spelled("sub sub_ subtract __sub__ __isub__"))
PRODUCTS = frozenset(spelled("mul mul_ multiply __mul__ __rmul__ __imul__"))
ADDMM = frozenset(spelled("addmm"))
DETACHED = frozenset(spelled("detach detach_"))
DROPOUTS = frozenset(
    spelled("dropout dropout_ dropout1d dropout2d dropout3d feature_dropout feature_dropout_")
)
SHARES = frozenset([*LINEAR_MAPS, F.embedding, *MATMULS])  # weights meet data here, whatever their shape


class Tape:
    """What a pass notes.

    batch:          examples in the pass
    layouts:        where activations have their examples, learned in earlier passes
    differentiable: the covariance will be differentiated. Then means with the tape's graph are carried beside those
                    of the pass (`Carrier.twin`): in the one graph variances are constants, in the other they are not
    half:           the tape's graph is one of bfloat16, beside the pass too
    """

    def __init__(
        self, batch: int, layouts: dict[Any, Any], differentiable: bool = False, half: bool = False
    ) -> None:
        self.batch = batch
        self.layouts = layouts
        self.differentiable = differentiable
        self.half = half
        self.beside = differentiable or half
        self.noises: list[tuple[Tensor, Tensor]] = []  # the mean where noise enters, and its variance
        self.uses: list[list[Use]] = []  # of each weight
        self.unseen: dict[str, None] = {}  # operations on weights whose sharing is left out

    def add_noise(self, mean: Tensor, var: Tensor) -> None:
        """Independent noise of every entry."""
        self.noises.append((mean, var))

    def add_use(self, use: Use) -> None:
        """Of a weight: uses of the same one share its noise."""
        for uses in self.uses:
            if uses[0].weight is use.weight and type(uses[0]) is type(use):
                uses.append(use)
                return
        self.uses.append([use])

    def needs_precision(self, function: Any) -> bool:
        """Will a difference of variances be taken?"""
        return function in GATES

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
    ) -> tuple[Any, bool]:
        """The rule's result with the tape's graph, and whether it is one of weights alone.

        known: the result without it, where the tape is differentiable
        """
        if self._of_weights_alone(func, args, kwargs):
            if known is None:
                known = function(*replace(args, Carrier, unpack), **replace(kwargs, Carrier, unpack))
            return known, True
        most = max([2, *[c.dim() for c in _carriers((args, kwargs)) if not c.is_weight]])
        entered: list[Carrier] = []

        def through(carrier: Carrier) -> Any:
            if not carrier.is_weight:
                return unpack(twin_of(carrier) if self.beside else carrier)
            if func not in SHARES and carrier.dim() >= most and carrier.shape[0] == self.batch:
                entered.append(carrier)
                return self.entered(unpack(carrier))  # spread over the examples, as a class token is
            return self._narrowed(unpack(carrier))

        values, named = replace(args, Carrier, through), replace(kwargs, Carrier, through)
        if func in DETACHED:
            return values[0], False
        through_values, through_named = replace((values, named), Tensor, self.cast)
        if self.beside:  # what the factors in the graph are made of
            values, named = replace(args, Carrier, unpack), replace(kwargs, Carrier, unpack)
        if function in GATES and (slope := GATES[function](*values, **named)) is not None:
            known = function(*values, **named) if known is None else known
            return self._gated(through_values[0].mean, values[0], slope, known), False
        result = self._through(func, function, through_values, through_named, known, values)
        weights = any(c.is_weight and all(c is not e for e in entered) for c in _carriers((args, kwargs)))
        return self._noted(func, function, args, values, named, result, weights), False

    def _through(self, func: Any, function: Any, values: Any, named: Any, known: Any, primal: Any) -> Any:
        """The operation with the tape's graph; its variances are those of `known`, or have no graph."""
        if func in LINEAR_MAPS and known is not None:
            result = Moments(func(*(parts(v)[0] for v in values), **named), known.var)
        elif func is F.batch_norm and isinstance(values[0], Moments):
            known = function(*values, **named) if known is None else known
            known = known if self.differentiable else _constant(known)
            primal = primal if self.differentiable else replace(primal, Moments, _constant)
            result = normed_alike(values, named, known, primal, self.cast)
        else:
            result = _with_variances(function(*values, **named), known)
        result = replace(result, (Moments, Simplex), self._narrowed) if self.half else result
        if isinstance(result, Moments) and not result.mean.requires_grad:
            result = Moments(leaf(result.mean), result.var)
        return result

    def _narrowed(self, held: Any) -> Any:
        if not self.half or not isinstance(held, Moments | Simplex):
            return held
        parts_of = (self.cast(t) if isinstance(t, Tensor) else t for t in held)
        return type(held)(*parts_of)

    def _of_weights_alone(self, func: Any, args: Any, kwargs: Any) -> bool:
        if any(not carrier.is_weight for carrier in _carriers((args, kwargs))) or func in SHARES:
            return False
        plain = [x for x in args if isinstance(x, Tensor) and not isinstance(x, Carrier)]
        weight = first_carrier((*args, *kwargs.values()))
        if func in SUMS or func in DIFFERENCES or func in PRODUCTS:  # with data that are not random?
            return not any(
                x.dim() > 1 and x.shape[0] == self.batch and x.dim() >= weight.dim() for x in plain
            )
        return True

    def _noted(
        self, func: Any, function: Any, args: Any, values: Any, named: Any, result: Any, weights: bool
    ) -> Any:
        if func in LINEAR_MAPS:
            self._linear(func, args, values, named, result)
        elif func in MATMULS:
            self._matmul(args, values, result)
        elif func in SUMS or func in DIFFERENCES:
            alpha = named.get("alpha", 1)
            for arg, value, factor in zip(
                args, values, (1, -alpha if func in DIFFERENCES else alpha), strict=False
            ):
                if is_weight(arg) and weights:
                    self.add_use(Elementwise(value.mean, value.var, result.mean, factor))
        elif func in PRODUCTS:
            self._product(args, values, result, weights)
        elif func is F.embedding:
            self.add_use(Lookup(values[1].mean, values[1].var, result.mean, values[0]))
        elif func in DROPOUTS:
            if isinstance(result, Moments) and isinstance(values[0], Moments):
                self.add_noise(result.mean, (result.var - values[0].var).clamp_min(0))
        elif weights:
            self._unshared(func, function, args, values, named, result)
        return result

    def _gated(self, through: Tensor, x: Moments, slope: Tensor, y: Moments) -> Moments:
        """y with `slope` as its derivative by x in the tape's graph, and what it is in the other."""
        if not self.differentiable:
            x, slope, y = _constant(x), slope.detach(), _constant(y)
        mean = self.cast(y.mean) + self.cast(slope) * (through - self.cast(x.mean))
        self.add_noise(mean, (y.var - slope.square() * x.var).clamp_min(0))
        return Moments(mean, self.cast(y.var))

    def _linear(self, func: Any, args: Any, values: Any, named: Any, y: Moments) -> None:
        (x, x_var), (w, w_var), (b, b_var) = (
            parts(v) for v in (*values[:2], values[2] if len(values) > 2 else None)
        )
        rest = values[3:]
        if x_var is not None and w_var is not None:
            self.add_noise(y.mean, func(x_var, w_var.to(x_var.dtype), None, *rest, **named))
        if b_var is not None:
            shape = (-1,) + (1,) * (y.mean.dim() - 2 if func is not F.linear else 0)
            self.add_use(Elementwise(b.view(shape) if func is not F.linear else b, b_var, y.mean))
        if w_var is None:
            return
        if func is F.linear:
            self.add_use(Linear(w, w_var, y.mean, x))
        else:
            transposed = func not in PLAIN_CONVOLUTIONS
            self.add_use(Convolution(w, w_var, y.mean, x, _geometry(transposed, rest, named), transposed))

    def _matmul(self, args: Any, values: Any, z: Moments) -> None:
        x, y = (v.moments() if isinstance(v, Simplex) else v for v in values[:2])
        (x_mean, x_var), (y_mean, y_var) = parts(x), parts(y)
        if x_var is not None and y_var is not None:
            self.add_noise(z.mean, torch.matmul(x_var, y_var.to(x_var.dtype)))
        if is_weight(args[1]) and y_mean.dim() == 2:
            self.add_use(Linear(y_mean, y_var.mT, z.mean, x_mean))
        elif is_weight(args[0]) or is_weight(args[1]):
            self._unshared(torch.matmul, RULES[torch.matmul], args, values, {}, z)

    def _product(self, args: Any, values: Any, z: Moments, weights: bool) -> None:
        (x, x_var), (y, y_var) = parts(values[0]), parts(values[1])
        if x_var is not None and y_var is not None:
            self.add_noise(z.mean, x_var * y_var)
        for arg, mean, var, other in ((args[0], x, x_var, y), (args[1], y, y_var, x)):
            if is_weight(arg) and weights:
                self.add_use(Elementwise(mean, var, z.mean, other))

    def _unshared(self, func: Any, function: Any, args: Any, values: Any, named: Any, result: Any) -> None:
        """What weights add to every entry, as if each entry had noise of its own."""
        self.unseen[f"{name_of(func)} in {calling_module()}"] = None
        fixed = tuple(
            v.mean if is_weight(a) and isinstance(v, Moments) else v
            for a, v in zip(args, values, strict=True)
        )
        without = function(*fixed, **named) if holds((fixed, named), (Moments, Simplex)) else None
        for each, other in zip(
            _moments(result), _moments(without) if without is not None else [None], strict=False
        ):
            var = each.var if other is None else (each.var - other.var.detach()).clamp_min(0)
            self.add_noise(each.mean, var)


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


def _moments(value: Any) -> list[Moments]:
    found: list[Moments] = []
    replace(value, Moments, found.append)
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


def _geometry(transposed: bool, rest: Any, named: Any) -> tuple[Any, ...]:
    """(stride, padding, dilation, groups)."""
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    names = ("stride", "padding", "output_padding", "groups", "dilation") if transposed else tuple(defaults)
    known = defaults | dict(zip(names, rest, strict=False)) | named
    return tuple(known[name] for name in defaults)
