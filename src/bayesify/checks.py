"""Checks of what a user hands in; each error names the argument, the value and the remedy.

A number says its range in its annotation, `std: Positive = 1.0`. `check_fields` holds the fields of a dataclass to
theirs, `checked` the arguments of a function, and the command line reads the same declarations.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache, wraps
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Generator, Tensor

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 3.4e38  # number that float32 holds
_NOUNS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    Generator: "a torch.Generator (torch.Generator().manual_seed(0))",
}


class NonFiniteError(RuntimeError):
    """A run met a loss, gradient, weight or momentum that is NaN or infinite; the last checkpoint is good."""


class NonFiniteLossError(ValueError):
    """A loss that is NaN or infinite; the message says where it comes from."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number; `above` and `below` are excluded."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        return (
            low and (self.below is None or value < self.below) and (self.most is None or value <= self.most)
        )

    def __str__(self) -> str:
        """In words: "of at least 1", "between 0 and 1"."""
        if self.above is not None and self.below is not None:
            return f"between {self.above:g} and {self.below:g}"
        ends = (
            ("of at least", self.least),
            ("above", self.above),
            ("below", self.below),
            ("at most", self.most),
        )
        return " and ".join(f"{word} {end:g}" for word, end in ends if end is not None)

    def __repr__(self) -> str:
        return f"<{self}>"


Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(above=0, below=1)]
Rate = Annotated[float, Range(least=0, below=1)]
Fraction = Annotated[float, Range(least=0, most=1)]
Count = Annotated[int, Range(least=1)]
NotNegativeCount = Annotated[int, Range(least=0)]
Depth = Annotated[int, Range(least=1, most=1000)]  # of a network


# -- types in words ---------------------------------------------------------------------------------------
def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union; of any other type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_plain(kind: Any) -> bool:
    """A type of numbers, texts, truth values and lists of them, which a file can hold."""
    if len(kinds_of(kind)) > 1:
        return all(map(is_plain, kinds_of(kind)))
    if get_origin(kind) is Annotated:
        return is_plain(get_args(kind)[0])
    listed = get_origin(kind) in (list, tuple, Sequence) and all(map(is_plain, get_args(kind)[:1]))
    return listed or get_origin(kind) is Literal or kind in (bool, int, float, str, types.NoneType)


def holds_numbers(kind: Any) -> bool:
    """Does a type take numbers, by themselves or in lists?"""
    return kind in (int, float) or any(map(holds_numbers, get_args(kind)))


def fits(value: Any, kind: Any) -> bool:
    """Is `value` of the annotated type and in its range? Whole numbers pass for real ones, truth values for neither,
    NaN and what float32 cannot hold for none."""
    if type(value) is kind and kind in (bool, int, str):  # most of them
        return kind is not int or abs(value) <= LARGEST
    if len(kinds_of(kind)) > 1:
        return any(fits(value, each) for each in kinds_of(kind))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return fits(value, inner[0]) and all(value in each for each in inner[1:] if isinstance(each, Range))
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Callable:
        return callable(value)
    if origin in (list, tuple, Sequence):
        listed = isinstance(value, list | tuple)
        return listed and all(fits(item, each) for each in inner[:1] for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(item, inner[1]) for item in value.values())
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return number and bool(abs(value) <= LARGEST)
    return kind is Any or isinstance(value, origin or kind)


def accepted(kind: Any, bounds: str = "") -> str:
    """A type in words: "a whole number of at least 1, a text or None"."""
    words = []
    for each in kinds_of(kind):
        origin, inner = get_origin(each), get_args(each)
        if each is bool:
            words += ["true", "false"]
        elif origin is Annotated:
            words.append(f"{accepted(inner[0])} {inner[1]}")
        elif origin is Literal:
            words += [repr(value) for value in inner]
        elif origin is Callable:
            words.append("a function")
        elif origin in (list, tuple, Sequence):
            words.append(f"a list of {_plural(inner[0])}")
        elif origin is Mapping:
            words.append(f"a dict of {_plural(inner[1])}")
        elif each is types.NoneType:
            words.append("None")
        else:
            article = "an" if each.__name__[0] in "AEIOU" else "a"
            noun = _NOUNS.get(each, f"{article} {each.__name__}")
            words.append(noun + (bounds if each in (int, float) else ""))
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _plural(kind: Any) -> str:
    base, *bounds = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    return " ".join([f"{accepted(base).removeprefix('a ')}s", *map(str, bounds)])


# -- plain data from files --------------------------------------------------------------------------------
def misfit(value: Any, kind: Any, name: str = "") -> str | None:
    """The place in plain data that is missing or not of its kind; None where there is none.

    kind: a type as `fits` takes it, or a dict of such by key; "key?" may be missing, "*" stands for every key

    >>> misfit({"name": "x", "sizes": [3, -1]}, {"name": str, "sizes": list[Count], "note?": str})
    'sizes'
    """
    if not isinstance(kind, dict):
        return None if fits(value, kind) else name
    if not isinstance(value, Mapping):
        return name
    for key, each in kind.items():
        known = key.removesuffix("?")
        if key not in ("*", known) and known not in value:
            continue
        for inside in value if key == "*" else (known,):
            full = f"{name}.{inside}" if name else str(inside)
            wrong = misfit(value[inside], each, full) if inside in value else full
            if wrong is not None:
                return wrong
    return None


def check_content(value: Any, kind: Any, file: object) -> None:
    """Raise where what a file holds is not what it must be, see `misfit`."""
    wrong = misfit(value, kind, "")
    if wrong is not None:
        what = wrong[:100] or "its content"
        raise ValueError(f"{file} is damaged: {what} is missing, or is not what bayesify writes")


@contextmanager
def naming(file: object, *kinds: type[Exception]) -> Iterator[None]:
    """Errors in here, ValueErrors or of other `kinds`, name the file that asked for what is wrong."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (ValueError, *kinds)) or str(file) in str(error):
            raise
        raise ValueError(f"{file}: {error}") from error


# -- values held to their types ---------------------------------------------------------------------------
def check_value(argument: str, value: Any, kind: Any, example: Any = None) -> None:
    """Raise where `value` is not of the annotated type and in its range; `example` is one that is."""
    if not fits(value, kind):
        shown = isinstance(example, int | float | str) and not isinstance(example, bool)
        remedy = f", e.g. {argument.rpartition(' ')[2]}={example!r}" if shown else ""
        remedy = meant(argument, value, kind) or remedy
        raise ValueError(f"{argument}={value!r} must be {accepted(kind)}{remedy}")


def meant(argument: str, value: Any, kind: Any) -> str:
    """What to give in place of a value that is nearly one of this type; empty where nobody can tell."""
    if isinstance(value, Tensor) and holds_numbers(kind):
        return f"; a tensor is none, its number is {argument}.item()"
    if isinstance(value, float) and value.is_integer() and not fits(value, kind) and fits(int(value), kind):
        return f"; write {argument}={int(value)}"
    return ""


def check_fields(table: Any) -> None:
    """Hold the fields of a dataclass to their annotations. Numbers of numpy's become Python's, which files hold."""
    kinds: dict[str, Any] = _kinds(type(table))  # type: ignore[arg-type]
    for each in fields(table):
        value = getattr(table, each.name)
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(table, each.name, value)
        check_value(
            each.name, value, kinds.get(each.name, Any), None if each.default is MISSING else each.default
        )


def checked(function: F) -> F:
    """Hold the arguments of `function` that are plain data, or generators, to their annotations."""
    parameters = inspect.signature(function).parameters
    kinds: dict[str, Any] = {}
    places: list[tuple[int, str]] = []

    def find_kinds() -> None:  # when it is first called: an import need not wait for it
        for name, kind in get_type_hints(function, include_extras=True).items():
            if name in parameters and all(is_plain(each) or each is Generator for each in kinds_of(kind)):
                kinds[name] = (kind, parameters[name].default)
        places.extend((i, name) for i, name in enumerate(parameters) if name in kinds)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kinds:
            find_kinds()
        given = [(name, args[i]) for i, name in places if i < len(args)]
        for name, value in (*given, *kwargs.items()):
            if name in kinds and value is not kinds[name][1]:
                check_value(name, value, *kinds[name])
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


@lru_cache(maxsize=256)
def _kinds(table: type) -> dict[str, Any]:
    try:
        return get_type_hints(table, include_extras=True)
    except NameError:  # of a class of the user's whose annotations are known to type checkers alone
        return {}


def as_tensor(value: Any, argument: str, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor: numbers in lists and numpy arrays are turned into one, on the device of `like`."""
    if isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(value, device=None if like is None else like.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{argument} is a {type(value).__name__} that holds no numbers: give a tensor, e.g. torch.tensor([0, 1])"
        ) from None


def check_num_data(num_data: Any) -> None:
    """`num_data` must be a positive whole number."""
    check_positive_whole(num_data, "num_data", ": the number of training examples")


def check_positive_whole(value: Any, argument: str, remark: str) -> None:
    """`value` must be a positive whole number; `remark` says what it is, or gives an example."""
    if not is_whole(value, 1):
        raise ValueError(f"{argument}={value!r} must be a positive whole number{remark}")


def is_whole(value: Any, least: int) -> bool:
    """Is `value` a whole number of at least `least`? A truth value is none. It compiles."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_whole(value: Any, argument: str, least: int) -> None:
    """`value` must be a whole number of at least `least`."""
    if not is_whole(value, least):
        check_value(argument, value, Annotated[int, Range(least=least)], max(least, 5))


def check_setting(name: str, value: Any, kind: Any) -> None:
    """As `check_value`; a number may stand in a tensor, on any device."""
    check_value(name, value.item() if isinstance(value, Tensor) and value.numel() == 1 else value, kind)
