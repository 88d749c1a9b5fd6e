"""What tells the state of a model from a stored one: names that only one of them has, and other shapes."""

from collections.abc import Mapping, Sequence

from torch import Tensor


def differences(
    mine: Mapping[str, Tensor],
    stored: Mapping[str, Tensor],
    *,
    only_mine: str,
    only_stored: str,
    shapes: str,
    num_named: int,
) -> str:
    """The differences in words; empty where there are none.

    only_mine, only_stored:  the words before names that one side lacks
    shapes:     of a tensor that both have, a text with {name}, {mine} and {stored}
    num_named:  how many of a kind are written out
    """
    other = [name for name in mine if name in stored and mine[name].shape != stored[name].shape]
    kinds = (
        (only_mine, [name for name in mine if name not in stored]),
        (only_stored, [name for name in stored if name not in mine]),
        ("", [shapes.format(name=n, mine=_shape(mine[n]), stored=_shape(stored[n])) for n in other]),
    )
    return "; ".join(words + first_few(found, num_named) for words, found in kinds if found)


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def first_few(found: Sequence[str], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
