"""Options declared once: a field with its type, range and meaning. Checks, words and flags follow from it."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import numpy as np

from bayesify.checks import Range, accepted, fits, kinds_of, meant
from bayesify.names import lookup

F = TypeVar("F", bound=Callable[..., Any])


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
        if not fits(value, self.kind) or (number and value not in self._bounds):
            raise ValueError(
                f"{argument}={value!r} must be {self.accepted}{meant(argument, value, self.kind)}"
            )
        if isinstance(value, str) and not value:
            raise ValueError(f"{argument}='' must not be empty: give {self.accepted}")

    @property
    def _bounds(self) -> Range:
        return Range(self.least, self.above, self.below)

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
        return str(self._bounds)

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
