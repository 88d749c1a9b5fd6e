"""What tells the state of a model from a stored one: names that only one of them has, other shapes, other settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

Shape = tuple[int, ...]


def differences(
    mine: Mapping[str, Shape],
    stored: Mapping[str, Shape],
    *,
    only_mine: str,
    only_stored: str,
    shapes: str,
    num_named: int,
) -> str:
    """The differences in words, of names and shapes; empty where there are none.

    only_mine, only_stored:  the words before names that one side lacks
    shapes:     of a tensor that both have, a text with {name}, {mine} and {stored}
    num_named:  how many of a kind are written out
    """
    other = [name for name in mine if name in stored and mine[name] != stored[name]]
    kinds = (
        (only_mine, [name for name in mine if name not in stored]),
        (only_stored, [name for name in stored if name not in mine]),
        ("", [shapes.format(name=n, mine=mine[n], stored=stored[n]) for n in other]),
    )
    return "; ".join(words + first_few(found, num_named) for words, found in kinds if found)


def changes(stored: Any, mine: Any, name: str = "") -> list[str]:
    """Where plain data differ from stored ones, as "name: old → new"; of tables what both of them have.

    Numbers that agree to six digits are the same: they may have been computed on another machine.

    >>> changes({"prior": {"std": 0.5}, "lr": 0.1}, {"prior": {"std": 1.0}, "lr": 0.1})
    ['prior.std: 0.5 → 1.0']
    """
    if isinstance(stored, Mapping) and isinstance(mine, Mapping):
        parts = [(key, f"{name}.{key}" if name else str(key)) for key in mine if key in stored]
        return [text for key, part in parts for text in changes(stored[key], mine[key], part)]
    return [] if _same(stored, mine) else [f"{name}: {_short(stored)} → {_short(mine)}"]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)
    return bool(a == b)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Every name with its shape."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def first_few(found: Sequence[str], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
