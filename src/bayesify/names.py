"""Looking a name up in a registry, with an error that lists the choices and the nearest one."""

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")


def lookup(registry: Mapping[str, T], name: str, argument: str) -> T:
    """`registry[name]`, or a ValueError that names the argument, the value and the choices."""
    check_choice(registry, name, argument)
    return registry[name]


def check_choice(choices: Collection[str], name: str, argument: str) -> None:
    """Raise where `argument` is none of the choices, with the nearest one; a tuple is listed in its own order."""
    if name not in choices:
        near = difflib.get_close_matches(str(name), choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(choices if isinstance(choices, tuple) else sorted(choices))
        raise ValueError(f"{argument}={name!r} does not exist; choose from {listed}.{hint}")
