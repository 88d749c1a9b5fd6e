"""Registries of classes, and looking a name up in one, with an error that lists the choices and the nearest one.
Patterns that search names."""

import difflib
import importlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST = 500  # characters of a pattern
MOST_WAYS = 32**4  # in which a pattern may match one name, where a repeat has 32


class Registry(dict[str, T]):
    """name -> class. What is entered must be a subclass of `kind`."""

    def __init__(self, kind: type, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __setitem__(self, name: str, entry: T) -> None:
        if not isinstance(entry, type) or not issubclass(entry, self.kind):
            raise TypeError(f"{name!r}: {entry!r} must be a subclass of {self.kind}")
        super().__setitem__(name, entry)


def lookup(registry: Mapping[str, T], name: str, argument: str) -> T:
    """`registry[name]`, or a ValueError that names the argument, the value and the choices."""
    check_choice(registry, name, argument)
    return registry[name]


def check_choice(choices: Collection[str], name: str, argument: str) -> None:
    """Raise where `argument` is none of the choices, with the nearest one; a tuple is listed in its own order."""
    if not isinstance(name, str) or name not in choices:
        near = difflib.get_close_matches(str(name), choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(choices if isinstance(choices, tuple) else sorted(choices))
        raise ValueError(f"{argument}={name!r} does not exist; choose from {listed}.{hint}")


def import_factory(path: str, argument: str) -> Callable[..., Any]:
    """The callable at "package.module:factory"."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ValueError(
            f"{argument}={path!r} must be 'package.module:factory', with a name on both sides of the colon"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"{argument}={path!r}: importing module {module_name!r} failed ({describe(error)}); check its "
            f"spelling and that its folder is on PYTHONPATH"
        ) from error
    try:
        factory = getattr(module, attribute)
    except AttributeError:
        public = {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_")}
        factory = lookup(public, attribute, f"{argument}={path!r}: factory")
    if not callable(factory):
        raise TypeError(
            f"{argument}={path!r} is a {type(factory).__name__}; it must be a function or a class"
        )
    return factory


def describe(error: Exception) -> str:
    """Its kind and its words."""
    return f"{type(error).__name__}: {error}"


def check_quick(pattern: str) -> None:
    """Raise where a search by the pattern might not end: it may come from a file of somebody else's.

    A search tries all ways in which a pattern can match a name: the product of those of its repeats and of the
    alternatives of its groups. A repeated group that has several, (a+)+ or (a|a)*, has no bound. What changes how a
    pattern is read, (?x) or (?#…), is refused.
    """
    # sets and escaped characters are one character
    plain = re.sub(r"\\.|\[\^?\]?(\\.|[^\]\\])*\]", "x", pattern)
    strange = len(pattern) > LONGEST or re.search(r"\(\?(?!:|=|!|<=|<!|i\))", plain)
    inside = [[1, 1]]  # of each open group: ways of its parts, alternatives
    for i, letter in enumerate(plain):
        repeated, ways = letter not in "(*+?{" and plain[i + 1 : i + 2] in ("*", "+", "?", "{"), 1
        if letter == "(":
            inside.append([1, 1])
        elif letter == "|":
            inside[-1][1] += 1
        elif letter == ")" and len(inside) > 1:
            ways = math.prod(inside.pop())
            ways = MOST_WAYS + 1 if repeated and ways > 1 else ways
        inside[-1][0] *= ways * (32 if repeated else 1)
    if strange or inside[0][0] > MOST_WAYS:
        raise ValueError(
            f"the pattern {pattern[:LONGEST]!r} may take for ever: leave out repeats of groups that repeat, most "
            f"alternatives in groups and special groups, (?…), and use at most 4 repeats"
        )
