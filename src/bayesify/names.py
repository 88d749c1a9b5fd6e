"""Registries of classes, and looking a name up in one, with an error that lists the choices and the nearest one."""

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")


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
