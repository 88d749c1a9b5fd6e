"""Examples that no answer can be given to: NaN or infinite numbers in the input, NaN in what is predicted.

It reads values once a batch, after its last draw, and nothing inside of compiled or recorded code.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import can_read_values
from bayesify.predict.predictive import TENSORS, Predictive
from bayesify.torch_internals import pytree
from bayesify.weights import as_arguments

ACTIONS = ("raise", "nan", "pass")  # of `on_nonfinite`
NAMED = 10  # examples that a message names


class NonFinitePredictionError(ValueError):
    """Examples without an answer; `examples` are their numbers, counted from `first`."""

    def __init__(self, inputs: list[int], outputs: list[int], total: int, first: int = 0) -> None:
        self.inputs, self.outputs, self.total, self.first = inputs, outputs, total, first
        self.examples = [first + i for i in sorted({*inputs, *outputs})]
        found = inputs or outputs
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        named = ", ".join(str(first + i) for i in found[:NAMED]) + more
        batch = "a batch of " if first else ""  # `first` counts over the batches of a loader
        of = f"{len(found)} of {batch}{total} examples (counted from 0: {named})"
        wrong = f"the inputs of {of} hold NaN or infinite numbers: mend them" if inputs else (
            f"the predictions of {of} are NaN, their inputs are not: the network overflows, or its weights are NaN"
        )  # fmt: skip
        super().__init__(f"{wrong}; predict(on_nonfinite='nan') answers NaN for these (label -1, of classes)")


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Inside, the first example of a batch is number `first` of a data set."""
    try:
        yield
    except NonFinitePredictionError as error:
        raise NonFinitePredictionError(error.inputs, error.outputs, error.total, first) from None


def answered(x: Any, one: Callable[[Any], Predictive], on_nonfinite: str) -> Predictive:
    """`one(x)`; examples that are not finite raise, or with "nan" have NaN in every number."""
    if not can_read_values():
        return one(x)
    try:
        found = one(_cleaned(x) if on_nonfinite == "nan" else x)
    except Exception as error:  # of an operation that refuses NaN, perhaps
        total = next(
            (len(leaf) for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor) and leaf.dim()), 1
        )
        inputs = _examples(_in_inputs(x, total))
        if not inputs or on_nonfinite == "pass":
            raise
        raise NonFinitePredictionError(inputs, [], total) from error
    if _look_finite(x, found):
        return found
    in_inputs = None if on_nonfinite == "pass" else _in_inputs(x, len(found))
    in_outputs = _rows(found.mean.isnan()) | _rows(found.noise.isnan())
    wrong = in_outputs if in_inputs is None else in_inputs | in_outputs
    if not wrong.any():  # infinite by right, as the variance of heavy tails and masks, or their sum overflows
        return found
    if on_nonfinite != "nan":
        raise NonFinitePredictionError(_examples(in_inputs), _examples(in_outputs), len(found))
    return _blanked(found, wrong)


def _look_finite(x: Any, found: Predictive) -> bool:
    """Are the sums finite? Then all numbers are."""
    plain = isinstance(x, Tensor) and x.is_floating_point() and x.layout is torch.strided
    numbers = [x] if plain else [t for _, t in _numbers(x)]
    numbers += found.told
    sums = [t.sum() for t in numbers]
    if numbers[-1].device.type == "cpu":  # where reading is faster than adding
        return all(map(math.isfinite, map(float, sums)))
    return math.isfinite(float(sum(sums)))


def _numbers(x: Any) -> Iterator[tuple[bool, Tensor]]:
    """The tensors of real or complex numbers in an input, and whether they may hold −∞: see `_masks`."""
    args, kwargs = as_arguments(x)
    for place, (name, value) in enumerate((*enumerate(args), *kwargs.items())):
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
                if leaf.is_floating_point():
                    yield _masks(place, name), leaf
                elif leaf.is_complex():
                    yield False, torch.view_as_real(leaf)


def _masks(place: int, name: Any) -> bool:
    """May an argument be a mask that is added to scores? Every one but the first, and any that is called so."""
    return place > 0 or "mask" in str(name)


def _in_inputs(x: Any, total: int) -> Tensor | None:
    """Which of `total` examples have numbers that are not finite; None: no numbers. A tensor that is not of so many
    rows belongs to all of them. Masks may hold −∞."""
    found: Tensor | None = None
    for masks, numbers in _numbers(x):
        wrong = ~numbers.isfinite()
        if masks:
            wrong &= numbers != -math.inf
        rows = _rows(wrong) if wrong.dim() and len(wrong) == total else wrong.any().expand(total)
        found = rows if found is None else found | rows
    return found


def _rows(wrong: Tensor) -> Tensor:
    """(batch, ...) -> (batch,): is anything wrong?"""
    return wrong.flatten(1).any(1) if wrong.dim() > 1 else wrong


def _examples(wrong: Tensor | None) -> list[int]:
    return [] if wrong is None else wrong.nonzero().flatten().tolist()


def _cleaned(x: Any) -> Any:
    """The input with 0 in place of what is not finite, so that it harms no other examples; −∞ in masks stays."""
    if isinstance(x, dict):
        return {key: _zeroed(value, _masks(i, key)) for i, (key, value) in enumerate(x.items())}
    if type(x) in (tuple, list):
        return type(x)(_zeroed(value, _masks(i, i)) for i, value in enumerate(x))
    return _zeroed(x, masks=False)


def _zeroed(value: Any, masks: bool) -> Any:
    def one(t: Any) -> Any:
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.layout is not torch.strided:
            return t
        return t.nan_to_num(0.0, 0.0, -math.inf if masks else 0.0)

    return pytree.tree_map(one, value)


def _blanked(found: Predictive, wrong: Tensor) -> Predictive:
    """NaN in all numbers of the examples that are `wrong`."""

    def blank(value: Any, dim: int) -> Any:
        def one(t: Tensor) -> Tensor:
            return t.masked_fill(wrong.view([-1 if d == dim else 1 for d in range(t.dim())]), math.nan)

        return None if value is None else pytree.tree_map(one, value)

    tensors = {name: blank(getattr(found, name), int(name == "per_draw")) for name in TENSORS}
    law = found.law and replace(found.law, outputs=blank(found.law.outputs, 1))
    return replace(found, **tensors, law=law)
