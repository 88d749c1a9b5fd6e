"""What every data set must satisfy. Each failure is a ValueError that names the file or array at fault."""

import numpy as np
import torch
from torch import Tensor


def check_counts(num_inputs: int, num_targets: int, where: str) -> None:
    """As many targets as inputs, and at least one of each."""
    if num_inputs != num_targets:
        raise ValueError(f"{where}: {num_inputs} inputs but {num_targets} targets; the two must match")
    if num_inputs == 0:
        raise ValueError(f"{where}: holds no examples")


def check_labels(labels: Tensor, num_classes: int, where: str) -> None:
    """Integer labels in 0 … num_classes − 1."""
    if labels.dtype.is_floating_point or labels.dim() != 1:
        raise ValueError(
            f"{where}: labels are {labels.dtype} of shape {tuple(labels.shape)}; they must be integers of shape (N,)"
        )
    wrong = ((labels < 0) | (labels >= num_classes)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"{where}: label {int(labels[first])} of example {first} is outside 0..{num_classes - 1} "
            f"({len(wrong)} such label{'s' if len(wrong) > 1 else ''})"
        )


def check_several_classes(labels: Tensor, where: str) -> None:
    """At least two classes occur: with one there is nothing to learn and most metrics are undefined."""
    if len(labels) and bool((labels == labels[0]).all()):
        raise ValueError(f"{where}: every label is {int(labels[0])}; a classification set needs two classes")


def check_finite(values: Tensor, where: str) -> None:
    """No NaN and no infinity (integer arrays have none)."""
    if not values.is_floating_point():
        return
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(
            f"{where}: value {float(values[at])} at index {at} ({len(wrong)} values are NaN or infinite); "
            "clean or impute them first"
        )


def whole_numbers(array: np.ndarray, where: str) -> Tensor:
    """Labels or row numbers read from a file, as int64; floats are accepted where they hold whole numbers."""
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool((array % 1 == 0).all()))
    if not whole:
        raise ValueError(f"{where}: {array.dtype} values that are not whole numbers")
    return torch.from_numpy(array.astype(np.int64))


def real_numbers(array: np.ndarray, where: str) -> Tensor:
    """Features or targets read from a file, as float64."""
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{where}: {array.dtype} values that are not numbers")
    return torch.from_numpy(array.astype(np.float64))


def check_shape(shape: tuple[int, ...], expected: tuple[int | None, ...], where: str) -> None:
    """`shape` agrees with `expected`, where None stands for any size."""
    agrees = len(shape) == len(expected) and all(
        e is None or e == s for s, e in zip(shape, expected, strict=True)
    )
    if not agrees:
        wanted = ", ".join("any" if e is None else str(e) for e in expected)
        raise ValueError(f"{where}: shape {tuple(shape)} where ({wanted}) is expected")
