"""Checks of what a user hands in; each error names the argument, the value and the remedy."""

import math
from numbers import Integral, Real
from typing import Any


def check_num_data(num_data: Any) -> None:
    """`num_data` must be a positive whole number."""
    check_positive_whole(num_data, "num_data", ": the number of training examples")


def check_positive_whole(value: Any, argument: str, remark: str) -> None:
    """`value` must be a positive whole number; `remark` says what it is, or gives an example."""
    if not is_whole(value, 1):
        raise ValueError(f"{argument}={value!r} must be a positive whole number{remark}")


def is_whole(value: Any, least: int) -> bool:
    """Is `value` a whole number of at least `least`? A truth value is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


class NonFiniteError(RuntimeError):
    """A run met a loss, gradient, weight or momentum that is NaN or infinite; the last checkpoint is good."""


class NonFiniteLossError(ValueError):
    """A loss that is NaN or infinite; the message says where it comes from."""


def check_whole(value: Any, argument: str, least: int) -> None:
    """`value` must be a whole number of at least `least`."""
    if not is_whole(value, least):
        example = max(least, 5)
        raise ValueError(
            f"{argument}={value!r} must be a whole number of at least {least}, e.g. {argument}={example}"
        )


def check_not_negative(value: Any, argument: str) -> None:
    """`value` must be a number, 0 or larger, and finite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{argument}={value!r} must be a number, 0 or larger, e.g. {argument}=0.1")
