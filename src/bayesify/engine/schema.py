"""Options declared once: a field with its type, range and meaning. Checks, words and flags follow from it."""

import inspect
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from bayesify.names import lookup

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 3.4e38  # number that float32 holds
_NOUNS = {int: "a whole number", float: "a number", str: "a text"}


def option(
    heading: str,
    help: str,
    default: Any = MISSING,
    *,
    by_default: str = "",
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Mapping[str, Any] | None = None,
) -> Any:
    """A field of an `OptionTable`.

    heading:     under which help pages list it
    help:        what it means, as a sentence
    by_default:  what the default means, where that is None or "auto"
    least, above, below:  bounds of a number; the last two are excluded
    choices:     a registry; a text must be one of its names
    """
    known = {k: v for k, v in locals().items() if k != "default"}
    return field(default=default, metadata=known)


@dataclass(frozen=True)
class Option:
    """One option of a table, with all that `option` was told about it."""

    name: str
    kind: Any  # the annotation
    default: Any  # MISSING where it must be given
    heading: str
    help: str
    by_default: str
    least: float | None
    above: float | None
    below: float | None
    choices: Mapping[str, Any] | None

    def check(self, value: Any, argument: str) -> None:
        """Raise where `value` is not of the type or not in the range."""
        if isinstance(value, str) and self.choices is not None:
            lookup(self.choices, value, argument)
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not fits(value, self.kind) or (number and not self._inside(float(value))):
            raise ValueError(f"{argument}={value!r} must be {self.accepted}")
        if isinstance(value, str) and not value:
            raise ValueError(f"{argument}='' must not be empty: give {self.accepted}")

    def _inside(self, value: float) -> bool:
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        return abs(value) <= LARGEST and low and (self.below is None or value < self.below)

    def read(self, value: Any) -> Any:
        """A value from a file or flag: a text of digits is a whole number where the option takes one."""
        digits = isinstance(value, str) and value.isdigit() and int in kinds_of(self.kind)
        return int(value) if digits else value

    @property
    def accepted(self) -> str:
        """The values it takes, in words: "a number above 0, or None (no limit)"."""
        words = accepted(self.kind, f" {self.range}" if self.range else "")
        return f"{words} ({self.by_default})" if words.endswith("None") and self.by_default else words

    @property
    def range(self) -> str:
        """The bounds in words."""
        if self.above is not None and self.below is not None:
            return f"between {self.above:g} and {self.below:g}"
        ends = (("of at least", self.least), ("above", self.above), ("below", self.below))
        return " and ".join(f"{word} {end:g}" for word, end in ends if end is not None)

    @property
    def bounds(self) -> str:
        """The bounds in signs: "x>=1", "0<x<1"; empty where there are none."""
        low, sign = (self.least, "=") if self.above is None else (self.above, "")
        if self.below is None:
            return "" if low is None else f"x>{sign}{low:g}"
        return f"{'' if low is None else f'{low:g}<{sign}'}x<{self.below:g}"

    @property
    def meaning(self) -> str:
        """The help, with the names to choose from."""
        return self.help if self.choices is None else f"{self.help} One of {', '.join(self.choices)}."

    @property
    def described(self) -> str:
        """Meaning, bounds, and what None stands for."""
        bounds = self.range.removeprefix("of ")
        absent = f"{self.default!r}: {self.by_default}" if self.by_default else ""
        notes = "; ".join(note for note in (bounds, absent) if note)
        return f"{self.meaning} {notes[:1].upper()}{notes[1:]}." if notes else self.meaning


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """Options with types, ranges and defaults; a value that cannot be right is an error at once."""

    prefix: ClassVar[str] = ""  # of an option's name in errors

    def __post_init__(self) -> None:
        for name, each in self.options().items():
            value = getattr(self, name)
            if isinstance(value, np.generic):  # which neither JSON nor `random.seed` takes
                value = value.item()
                object.__setattr__(self, name, value)
            each.check(value, f"{self.prefix}{name}")

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Every option by name. A subclass that only gives another default inherits the meaning."""
        known: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for name, each in getattr(base, "__dataclass_fields__", {}).items():
                known[name] = each.metadata or known.get(name)
        kinds = get_type_hints(cls)
        return {f.name: Option(f.name, kinds[f.name], f.default, **known[f.name]) for f in fields(cls)}

    @classmethod
    def picked(cls, values: Mapping[str, Any]) -> Self:
        """The table from values among which its own are, as in `locals()`."""
        return cls(**{f.name: values[f.name] for f in fields(cls)})


def documented(table: type[OptionTable]) -> Callable[[F], F]:
    """Append the options of `table`, under their headings, to the docstring of the function that takes them."""
    lines: list[str] = []
    for heading in dict.fromkeys(each.heading for each in table.options().values()):
        mine = [each for each in table.options().values() if each.heading == heading]
        width = 2 + max(len(each.name) for each in mine)
        lines += ["", heading]
        for each in mine:
            start = f"    {each.name + ':':{width}}"
            lines += textwrap.wrap(f"{start}{each.described}", 110, subsequent_indent=" " * len(start))

    def decorate(function: F) -> F:
        function.__doc__ = inspect.cleandoc(function.__doc__ or "") + "\n" + "\n".join(lines) + "\n"
        return function

    return decorate


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union; of any other type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_plain(kind: Any) -> bool:
    """A type of numbers, texts, truth values and lists of them, which a file can hold."""
    if len(kinds_of(kind)) > 1:
        return all(map(is_plain, kinds_of(kind)))
    listed = get_origin(kind) in (list, tuple, Sequence) and all(map(is_plain, get_args(kind)[:1]))
    return listed or get_origin(kind) is Literal or kind in (bool, int, float, str, types.NoneType)


def fits(value: Any, kind: Any) -> bool:
    """Is `value` of the annotated type? Whole numbers pass for real ones, truth values for neither."""
    if len(kinds_of(kind)) > 1:
        return any(fits(value, each) for each in kinds_of(kind))
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Callable:
        return callable(value)
    if origin in (list, tuple, Sequence):
        listed = isinstance(value, list | tuple)
        return listed and all(fits(item, each) for each in inner[:1] for item in value)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return kind is Any or isinstance(value, origin or kind)


def accepted(kind: Any, bounds: str = "") -> str:
    """A type in words: "a whole number of at least 1, a text or None"."""
    words = []
    for each in kinds_of(kind):
        inner = get_args(each)
        if each is bool:
            words += ["true", "false"]
        elif get_origin(each) is Literal:
            words += [repr(value) for value in inner]
        elif get_origin(each) is Callable:
            words.append("a function")
        elif get_origin(each) in (list, tuple, Sequence):
            words.append(f"a list of {accepted(inner[0]).removeprefix('a ')}s")
        elif each is types.NoneType:
            words.append("None")
        else:
            article = "an" if each.__name__[0] in "AEIOU" else "a"
            noun = _NOUNS.get(each, f"{article} {each.__name__}")
            words.append(noun + (bounds if each in (int, float) else ""))
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
