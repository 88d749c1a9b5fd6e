"""Mean and variance carried through every operation of an unmodified network."""

import copy
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.execution import compiling
from bayesify.moments.foreign_functions import with_graph
from bayesify.moments.gains import Running
from bayesify.moments.missing import no_place, no_rule, not_covered
from bayesify.moments.registry import (
    AUGMENTED,
    COMPOSITE,
    INPLACE,
    INPLACE_AT,
    TAKES_COMPLEX,
    TAKES_HALF,
    TAKES_SIMPLEX,
    find,
)
from bayesify.moments.standin import OPERATORS, StandIn, holds, in_order, renamed, replace
from bayesify.moments.values import Entries, Gaussian, Moments, Simplex, Trace, narrowed, widened
from bayesify.moments.writing import RESHAPES, VIEWS, Storage, applied, join

RANDOM = (Moments, Simplex, Gaussian)  # what a carrier may hold


class Carrier(StandIn):
    """Stands in for an activation or a weight; holds its moments and the forms of the rules to use."""

    def __init__(
        self, moments: Any, forms: tuple[str, ...] = ("",), tape: Any = None, is_weight: bool = False
    ) -> None:
        self.storage = Storage(narrowed(moments, forms))
        self.forms = forms
        self.tape = tape  # where noise that enters is noted (tape.py), or gains (gains.py), or None
        self.is_weight = is_weight  # or made of weights alone
        self.twin: Any = None  # where gradients are wanted too: a carrier of the same, with the tape's graph
        if tape is not None and not compiling():
            tape.carriers.append(weakref.ref(self))

    @property
    def moments(self) -> Any:
        """What is known of the tensor it stands for, after all writes."""
        return self.storage.read()

    def metadata(self) -> Tensor:
        """The mean."""
        return self.moments.mean

    def unpacked(self, simplex: bool = False, half: bool = False) -> Any:
        """What a rule gets, by what it takes."""
        held = self.moments
        if isinstance(held, Simplex) and not simplex:
            held = held.moments()
        narrow = "half" in self.forms or "half_on_gpu" in self.forms
        return widened(held) if narrow and not half else held

    def attribute(self, get: Any) -> Any:
        """Of the tensor it stands for: `T` and the like hold values, `requires_grad` and the like do not."""
        name = get.__self__.__name__
        return getattr(self, name) if name in vars(StandIn) else get(self.metadata())

    def data_ptr(self) -> int:
        """0: a carrier has no memory of its own."""
        return 0  # it has no place of its own

    def __repr__(self) -> str:
        return f"Carrier({self.moments!r})"

    def __deepcopy__(self, memo: Any) -> "Carrier":
        return carried(copy.deepcopy(self.moments, memo), self.forms, self.tape, self.is_weight)

    @classmethod
    def operate(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find the rule of the operation, unpack the carriers, wrap or write back what it returns."""
        kwargs = renamed(kwargs)
        carrier = first_carrier((*args, *kwargs.values()))
        function = find(func, carrier.forms)
        if function is None:
            if getattr(func, "__name__", "") == "__get__":
                return carrier.attribute(func)
            raise NotImplementedError(no_rule(func, carrier.forms))
        if function in COMPOSITE:
            return function(*args, **kwargs)
        args, kwargs = in_order(func, args, kwargs)
        gains = carrier.tape if isinstance(carrier.tape, Running) else None
        tape, of_weights = (carrier.tape if gains is None else None), False
        if tape is not None and (result := tape.instead(func, args, kwargs)) is not None:
            return result
        args, kwargs, writes = _without_inplace(func, args, kwargs)
        # differences of variances, which a tape takes of activations, are not for half precision
        half = function in TAKES_HALF and not (tape is not None and tape.needs_precision(function))
        simplex = function in TAKES_SIMPLEX

        def unpack(carrier: Carrier) -> Any:
            return carrier.unpacked(simplex, half)

        # the rule's own operations have no carriers: spares dispatch, traced or not
        result = None
        with internals.DisableTorchFunction(), with_graph(carrier.moments.mean):
            if tape is None or not tape.finds(function):
                result = function(*replace(args, Carrier, unpack), **replace(kwargs, Carrier, unpack))
            if gains is not None:
                result = gains.corrected(func, args, result)
        if tape is not None:
            with internals.DisableTorchFunction(), torch.enable_grad():
                result, twin, of_weights = tape.run(func, function, args, kwargs, unpack, result)
        if function not in TAKES_COMPLEX and (
            is_complex(result) or holds((args, kwargs), Carrier, is_complex)
        ):
            raise NotImplementedError(not_covered(func, "complex numbers"))
        done = _settled(func, args, kwargs, result, writes, carrier, of_weights)
        if tape is not None and tape.beside and not of_weights:
            args, kwargs = replace(args, Carrier, twin_of), replace(kwargs, Carrier, twin_of)
            tie(done, _settled(func, args, kwargs, twin, writes, carrier, False))
        return done


def _settled(
    func: Any, args: Any, kwargs: Any, result: Any, writes: bool, like: Carrier, of_weights: bool
) -> Any:
    """What the network gets: carriers of the result, or its first argument, into which it was written."""
    if writes:
        return _write_back(func, args, kwargs, result, like)
    result = wrap(result, like.forms, like.tape, of_weights)
    if func in VIEWS and isinstance(args[0], Carrier) and not isinstance(like.moments, Gaussian):
        shown = (replace(each, Carrier, Carrier.metadata) for each in (args[1:], kwargs))
        join(result, args[0], func, *shown)
    return result


def twin_of(carrier: Carrier) -> Carrier:
    """The carrier with the tape's graph; one that has none enters there, with noise of its own in every entry."""
    if carrier.is_weight:
        return carrier
    if carrier.twin is None:
        carrier.twin = carried(carrier.tape.entered(carrier.unpacked()), carrier.forms, carrier.tape)
    return carrier.twin


def tie(results: Any, twins: Any) -> None:
    """Carriers in `results` get those in `twins`."""
    for one, other in zip(_all_of(results), _all_of(twins), strict=True):
        one.twin = other


def _all_of(value: Any) -> list[Carrier]:
    found: list[Carrier] = []
    replace(tuple(value) if isinstance(value, Entries) else value, Carrier, found.append)
    return found


class TensorCarrier(Carrier, Tensor):  # type: ignore[misc, override]
    """A carrier for which isinstance(x, Tensor) holds: networks ask, and take another branch for what is none."""

    @staticmethod
    def __new__(cls, moments: Any, *_: Any) -> "TensorCarrier":
        mean = moments.mean
        return internals.make_wrapper_subclass(cls, mean.shape, dtype=mean.dtype, device=mean.device)

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        """Past `__torch_function__` there is nothing to compute with."""
        raise NotImplementedError(no_rule(func, ("",)))


for _name in OPERATORS:  # torch's own ask the mode (mode.py), whatever stands on the left
    setattr(TensorCarrier, _name, getattr(Tensor, _name))


def carried(
    moments: Any, forms: tuple[str, ...] = ("",), tape: Any = None, is_weight: bool = False
) -> Carrier:
    """A carrier of `moments`; dynamo traces a plain object only."""
    plain = compiling() or not internals.make_wrapper_subclass
    return (Carrier if plain else TensorCarrier)(moments, forms, tape, is_weight)


def is_complex(value: Any) -> bool:
    """Does `value` hold complex numbers?"""
    held = value.moments if isinstance(value, Carrier) else value
    return isinstance(held, RANDOM) and held.mean.is_complex()


def wrap(value: Any, forms: tuple[str, ...], tape: Any = None, is_weight: bool = False) -> Any:
    """`value` with every moments object in it as a carrier."""
    if isinstance(value, Entries):
        return Entries(carried(value.values, forms, tape, is_weight), value.indices)
    return replace(value, RANDOM, lambda moments: carried(moments, forms, tape, is_weight))


def unwrap(value: Any) -> Any:
    """`value` with every carrier in it as moments: what leaves the network."""
    return replace(value, Carrier, _left)


def _left(carrier: Carrier) -> Moments:
    held, tape = carrier.unpacked(), carrier.tape
    if tape is None or isinstance(tape, Running):
        return Moments(held.mean, held.var, cov=held.cov)
    if carrier.is_weight:  # rows of a table as they are
        through = tape.entered(held).mean
    else:
        through = twin_of(carrier).unpacked().mean if tape.beside else held.mean
    return Moments(held.mean, held.var, trace=Trace(tape, through))


def _without_inplace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """The arguments without `inplace`, and whether the result goes into the first of them."""
    writes = writes_into_first(func, args, kwargs)
    place = INPLACE_AT.get(func, len(args))
    args = (*args[:place], *args[place + 1 :])
    return args, {k: v for k, v in kwargs.items() if k != "inplace"}, writes


def writes_into_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does the result go into the first argument?"""
    place = INPLACE_AT.get(func, len(args))
    return bool(args[place]) if place < len(args) else func in INPLACE or bool(kwargs.get("inplace", False))


def _write_back(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, like: Carrier) -> Any:
    target = args[0]
    if isinstance(target, Carrier):
        held = narrowed(result, like.forms)
        if func in RESHAPES:  # the same numbers, seen by other views as before
            target.storage = Storage(held, target.storage, applied(RESHAPES[func], args[1:], kwargs))
        else:
            target.storage.write(held)
        target.is_weight = target.is_weight and all(map(_is_weight, (*args, *kwargs.values())))
        return target
    if func in AUGMENTED:
        return wrap(result, like.forms, like.tape)
    raise NotImplementedError(no_place(func))


def _is_weight(value: Any) -> bool:
    return not isinstance(value, Carrier) or value.is_weight


def first_carrier(values: Iterable[Any]) -> Any:
    """The first carrier among the values, also one level down in lists and tuples; None without one.

    One with a tape goes before those without: a network may have kept these from another pass.
    """
    found = None
    for value in values:
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, Carrier):
                if each.tape is not None:
                    return each
                found = each if found is None else found
    return found
