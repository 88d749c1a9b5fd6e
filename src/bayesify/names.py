"""Looking a name up in a registry, with an error that lists the choices and the nearest one."""

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")


def lookup(registry: Mapping[str, T], name: str, argument: str) -> T:
    """`registry[name]`, or a ValueError that names the argument, the value and the choices."""
    if name in registry:
        return registry[name]
    raise unknown(registry, name, argument)


def unknown(choices: Collection[str], name: str, argument: str) -> ValueError:
    """The error that `argument` is none of the choices, with the nearest one."""
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"{argument}={name!r} does not exist; choose from {', '.join(sorted(choices))}.{hint}")
