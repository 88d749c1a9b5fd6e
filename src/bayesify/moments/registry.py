"""The rules of the moments pass by operation, and how one is registered."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bayesify.moments.standin import learn_order

#: the rules by their forms. "" holds those for all; the others are looked up before it where a carrier asks for them.
#: "exact": exact moments of a normal input; "total", "simple": normalisation by means and variances, or as a fixed
#: scaling; "half", "half_on_gpu": no rules of their own, variances are carried in bfloat16; "cross": sums of operands
#: that depend on each other; "full": rules for `Gaussian`, with "" left out, "full_exact": its exact moments
FORMS: dict[str, dict[Any, Callable[..., Any]]] = {
    form: {}
    for form in ("", "exact", "total", "simple", "half", "half_on_gpu", "cross", "full_exact", "full")
}
RULES = FORMS[""]
INPLACE: set[Any] = set()  # operations whose result is written back into their first argument
AUGMENTED: set[Any] = set()  # `x += y` and the like: Python binds x to what they return
INPLACE_AT: dict[Any, int] = {}  # where the argument `inplace` stands, for operations that have one
TAKES_SIMPLEX: set[Any] = set()  # rules that know what to do with a Simplex
#: rules for variances in bfloat16 beside means in float32; others get all in float32
TAKES_HALF: set[Any] = set()
TAKES_COMPLEX: set[Any] = set()  # rules that know complex numbers (rules/fourier.py)
COMPOSITE: set[Any] = set()  # rules written in torch operations on carriers


def rule(
    *operations: Any,
    form: str | tuple[str, ...] = "",
    simplex: bool = False,
    half: bool = False,
    complex_too: bool = False,
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
            learn_order(operation)
            name = getattr(operation, "__name__", "")
            if name.startswith("__i"):
                AUGMENTED.add(operation)
            if name.startswith("__i") or (name.endswith("_") and not name.endswith("__")):
                INPLACE.add(operation)
            elif inspect.isfunction(operation) and "inplace" in operation.__code__.co_varnames:
                INPLACE_AT[operation] = operation.__code__.co_varnames.index("inplace")
        tables = (TAKES_SIMPLEX, TAKES_HALF, TAKES_COMPLEX, COMPOSITE)
        for takes, table in zip((simplex, half, complex_too, composite), tables, strict=True):
            if takes:
                table.update(by_form.values())
        return function

    return register


def spelled(*names: str) -> list[Any]:
    """Every public way to write an operation, by its names (a text may hold several): in torch, as a method, in
    torch.nn.functional."""
    places = (torch, torch.Tensor, F, torch.special)
    found = [getattr(place, name, None) for name in " ".join(names).split() for place in places]
    return list(dict.fromkeys(operation for operation in found if callable(operation)))


def find(func: Any, forms: tuple[str, ...]) -> Callable[..., Any] | None:
    """The rule for an operation: the first of `forms` that has one."""
    for form in forms:
        function = FORMS[form].get(func)
        if function is not None:
            return function
    return None
