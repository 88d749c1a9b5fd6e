"""What the docstrings say about each option: their lines "name:  meaning"."""

import inspect
import re
from functools import partial
from typing import Any

_LINE = re.compile(r"(?P<indent> *)(?P<names>\w+(, \w+)*): +(?P<text>\S.*)")


def unwrapped(entry: Any) -> Any:
    """The function or class that makes what a registry's entry stands for."""
    entry = getattr(entry, "build", getattr(entry, "load", entry))  # of a network, of a data set
    while isinstance(entry, partial):
        entry = entry.func
    return entry


def meanings(entry: Any) -> dict[str, str]:
    """option -> meaning, as the docstring of the entry or of its base classes has it."""
    made = unwrapped(entry)
    found: dict[str, str] = {}
    for each in reversed(made.__mro__) if isinstance(made, type) else [made]:
        found |= parse(each.__dict__.get("__doc__") or "" if isinstance(each, type) else each.__doc__ or "")
    return found


def parse(doc: str) -> dict[str, str]:
    """The named lines of a docstring, each with the deeper lines below it.

    >>> parse("Make a net.\\n\\n    hidden, depth:  units and\\n        layers\\n    dropout: rate\\n\\n    Done.")
    {'hidden': 'units and layers', 'depth': 'units and layers', 'dropout': 'rate'}
    """
    found: dict[str, str] = {}
    names: list[str] = []
    indent = 0
    for line in inspect.cleandoc(doc).splitlines():
        match = _LINE.fullmatch(line)
        if match:
            names, indent = match["names"].split(", "), len(match["indent"])
            found |= dict.fromkeys(names, match["text"])
        elif names and line.startswith(" " * (indent + 1)):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found
