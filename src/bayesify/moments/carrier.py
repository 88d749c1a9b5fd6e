"""Mean and variance carried through every operation of an unmodified network."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesify.moments.missing import no_place, no_rule
from bayesify.moments.standin import METADATA, StandIn, replace


class Moments(NamedTuple):
    """Elementwise mean and variance of a random tensor (`var` is a variance, of the mean's shape)."""

    mean: Tensor
    var: Tensor


def certain(value: Tensor) -> Moments:
    """What no random weight took part in."""
    return Moments(value, torch.zeros_like(value))


class Simplex(NamedTuple):
    """What softmax gives over the last dimension: rows that sum to 1, and the variance of their scores.

    A product with such rows needs the variance of the scores, because the entries of a row are dependent. After
    dropout with rate `dropped` an entry a is a·b/(1 − dropped), b one or zero; `mean` and `var` are those of a.
    """

    mean: Tensor
    var: Tensor
    score_var: Tensor
    dropped: float = 0.0

    def moments(self) -> Moments:
        """Of each entry by itself."""
        if not self.dropped:
            return Moments(self.mean, self.var)
        return Moments(self.mean, (self.var + self.dropped * self.mean.square()) / (1 - self.dropped))


class Gaussian(NamedTuple):
    """Mean (batch, *shape) and full covariance (batch, n, n) of a random tensor, n numbers per example."""

    mean: Tensor
    cov: Tensor

    @property
    def var(self) -> Tensor:
        return self.cov.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)


class Entries(NamedTuple):
    """Picked entries and where they stood, as torch returns them from max, min and topk."""

    values: Any
    indices: Tensor


RANDOM = (Moments, Simplex, Gaussian)  # what a carrier may hold

RULES: dict[Any, Callable[..., Any]] = {}
#: other forms of the rules, looked up before RULES where a carrier asks for them. "exact": exact moments of a normal
#: input; "total", "simple": normalisation by means and variances, or as a fixed scaling; "half", "half_on_gpu": no
#: rules of their own, variances are carried in bfloat16; "cross": sums of operands that depend on each other; "full":
#: rules for `Gaussian`, with RULES left out
FORMS: dict[str, dict[Any, Callable[..., Any]]] = {
    "": RULES,
    "exact": {},
    "total": {},
    "simple": {},
    "half": {},
    "half_on_gpu": {},
    "cross": {},
    "full": {},
}
INPLACE: set[Any] = set()  # operations whose result is written back into their first argument
INPLACE_AT: dict[Any, int] = {}  # where the argument `inplace` stands, for operations that have one
TAKES_SIMPLEX: set[Any] = set()  # rules that know what to do with a Simplex
TAKES_HALF: set[Any] = (
    set()
)  # rules for variances in bfloat16 beside means in float32; others get all in float32
COMPOSITE: set[Any] = set()  # rules written in torch operations on carriers
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}  # torch takes these too


def rule(
    *operations: Any,
    form: str | tuple[str, ...] = "",
    simplex: bool = False,
    half: bool = False,
    composite: bool = False,
) -> Callable[[Callable], Callable]:
    """Register how `operations` act on moments.

    The function gets the operation's own arguments, with a `Moments` wherever a random tensor stood,
    and returns `Moments` (or a list or tuple of them). With several forms it is told which one as `form=`.

    >>> @rule(torch.neg, torch.Tensor.neg)
    ... def negative(x):
    ...     return Moments(-x.mean, x.var)
    """

    def register(function: Callable) -> Callable:
        by_form = {form: function} if isinstance(form, str) else {f: partial(function, form=f) for f in form}
        for operation in operations:
            if "" in by_form:  # a new rule for all forms replaces the special ones
                for special in ("exact", "total", "simple", "cross"):
                    FORMS[special].pop(operation, None)
            for each, known in by_form.items():
                FORMS[each][operation] = known
            name = getattr(operation, "__name__", "")
            if name.startswith("__i") or (name.endswith("_") and not name.endswith("__")):
                INPLACE.add(operation)
            elif inspect.isfunction(operation) and "inplace" in operation.__code__.co_varnames:
                INPLACE_AT[operation] = operation.__code__.co_varnames.index("inplace")
        for takes, table in ((simplex, TAKES_SIMPLEX), (half, TAKES_HALF), (composite, COMPOSITE)):
            if takes:
                table.update(by_form.values())
        return function

    return register


def spelled(*names: str) -> list[Any]:
    """Every public way to write an operation: in torch, as a method, in torch.nn.functional."""
    places = (torch, torch.Tensor, F, torch.special)
    found = [getattr(place, name, None) for name in names for place in places]
    return list(dict.fromkeys(operation for operation in found if callable(operation)))


class Carrier(StandIn):
    """Stands in for an activation or a weight; holds its moments and the forms of the rules to use."""

    def __init__(self, moments: Any, forms: tuple[str, ...] = ("",)) -> None:
        self.moments = narrowed(moments, forms)
        self.forms = forms

    def metadata(self) -> Tensor:
        return self.moments.mean

    def unpacked(self, simplex: bool = False, half: bool = False) -> Any:
        """What a rule gets, by what it takes."""
        held = self.moments
        if isinstance(held, Simplex) and not simplex:
            held = held.moments()
        narrow = "half" in self.forms or "half_on_gpu" in self.forms
        return widened(held) if narrow and not half else held

    @classmethod
    def handle(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in METADATA:
            return func(*replace(args, Carrier, _mean), **replace(kwargs, Carrier, _mean))
        kwargs = {NUMPY_NAMES.get(name, name): value for name, value in kwargs.items()}
        carrier = first_carrier((*args, *kwargs.values()))
        function = find(func, carrier.forms)
        if function is None:
            raise NotImplementedError(no_rule(func, carrier.forms))
        if function in COMPOSITE:
            return function(*args, **kwargs)
        args, kwargs, writes = _without_inplace(func, args, kwargs)
        simplex, half = function in TAKES_SIMPLEX, function in TAKES_HALF

        def unpack(carrier: Carrier) -> Any:
            return carrier.unpacked(simplex, half)

        with (
            torch._C.DisableTorchFunction()
        ):  # the rule's own operations have no carriers: spares dispatch, traced or not
            result = function(*replace(args, Carrier, unpack), **replace(kwargs, Carrier, unpack))
        if writes:
            return _write_back(func, args[0], result, carrier.forms)
        return wrap(result, carrier.forms)


def find(func: Any, forms: tuple[str, ...]) -> Callable[..., Any] | None:
    """The rule for an operation: the first of `forms` that has one."""
    for form in forms:
        function = FORMS[form].get(func)
        if function is not None:
            return function
    return None


def wrap(value: Any, forms: tuple[str, ...]) -> Any:
    """`value` with every moments object in it as a carrier."""
    if isinstance(value, Entries):
        return Entries(Carrier(value.values, forms), value.indices)
    return replace(value, RANDOM, lambda moments: Carrier(moments, forms))


def unwrap(value: Any) -> Any:
    """`value` with every carrier in it as moments: what leaves the network."""
    return replace(value, Carrier, Carrier.unpacked)


def _without_inplace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """The arguments without `inplace`, and whether the result goes into the first of them."""
    writes = func in INPLACE or bool(kwargs.get("inplace", False))
    place = INPLACE_AT.get(func, len(args))
    if place < len(args):
        writes = bool(args[place])
        args = (*args[:place], *args[place + 1 :])
    return args, {k: v for k, v in kwargs.items() if k != "inplace"}, writes


def _write_back(func: Any, target: Any, result: Any, forms: tuple[str, ...]) -> Any:
    if isinstance(target, Carrier):
        target.moments = narrowed(result, forms)
        return target
    if func.__name__.startswith("__i"):  # Python binds the name to what an augmented assignment returns
        return wrap(result, forms)
    raise NotImplementedError(no_place(func))


def _mean(carrier: Carrier) -> Tensor:
    return carrier.moments.mean


def narrowed(held: Any, forms: tuple[str, ...]) -> Any:
    """Variances in bfloat16 beside means in float32: a rounding of 0.2 % on average, no smaller range."""
    wanted = "half" in forms or ("half_on_gpu" in forms and held.mean.is_cuda)
    return _variances_in(held, torch.bfloat16) if wanted and held.mean.dtype == torch.float32 else held


def widened(held: Any) -> Any:
    """Variances in the precision of the mean."""
    return _variances_in(held, held.mean.dtype)


def _variances_in(held: Any, dtype: torch.dtype) -> Any:
    if isinstance(held, Gaussian) or held.var.dtype == dtype:
        return held
    var = in_dtype(held.var, dtype)
    if isinstance(held, Simplex):
        return Simplex(held.mean, var, in_dtype(held.score_var, dtype), held.dropped)
    return Moments(held.mean, var)


def in_dtype(var: Tensor, dtype: torch.dtype) -> Tensor:
    """`var` in another dtype; an expanded view stays one."""
    if var.dtype == dtype:
        return var
    if 0 not in var.stride():
        return var.to(dtype)
    own = var[tuple([slice(None, None if step else 1) for step in var.stride()])]
    return own.to(dtype).expand(var.shape)


class CarrierMode(TorchFunctionMode):
    """Catches carriers inside tuples, where dynamo does not look for `__torch_function__`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if first_carrier((*args, *kwargs.values())) is not None:
            return Carrier.handle(func, tuple(args), kwargs)
        return func(*args, **kwargs)


def first_carrier(values: Iterable[Any]) -> Any:
    for value in values:
        if isinstance(value, Carrier):
            return value
        if isinstance(value, list | tuple):
            for v in value:
                if isinstance(v, Carrier):
                    return v
    return None


def parts(value: Any) -> tuple[Any, Any]:
    """(mean, var) of an operand; var is None for what is not random."""
    return (value.mean, value.var) if isinstance(value, Moments) else (value, None)
