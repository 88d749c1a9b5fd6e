"""Predictive: streaming over draws, and what it refuses. Values by hand: test_predictive_classes, _regression."""

from typing import Any

import pytest
import torch
from predictive_cases import regression, two_draws
from torch import Tensor

import bayesify as bf
from bayesify.predict.accumulation import Accumulator


def test_streaming_keeps_as_many_numbers_for_many_draws_as_for_few() -> None:
    def held(value: object) -> int:
        """Numbers in all tensors that can be reached from `value`."""
        if isinstance(value, Tensor):
            return value.numel()
        parts = value.values() if isinstance(value, dict) else value
        return sum(held(part) for part in parts) if isinstance(value, dict | list | tuple) else 0  # type: ignore[union-attr]

    def held_after(num_draws: int) -> int:
        accumulator = Accumulator(bf.likelihood("categorical"))
        for _ in range(num_draws):
            accumulator.add(torch.randn(1, 2, 3))
        return held(vars(accumulator))

    assert held_after(30) == held_after(3) > 0


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "normal", "heteroscedastic"])
def test_draws_one_by_one_or_in_chunks_give_the_same(name: str) -> None:
    outputs_ = torch.randn(7, 5, 4, dtype=torch.float64)
    one_by_one, chunks = Accumulator(bf.likelihood(name)), Accumulator(bf.likelihood(name))
    for i in range(7):
        one_by_one.add(outputs_[i : i + 1])
    for part in outputs_.split((3, 1, 3)):
        chunks.add(part)
    a, b = one_by_one.result(), chunks.result()
    assert a.num_draws == b.num_draws == 7
    for field in ("mean", "spread", "noise"):
        torch.testing.assert_close(getattr(a, field), getattr(b, field))
    if a.votes is not None:
        torch.testing.assert_close(a.votes, b.votes)


@pytest.mark.parametrize("field", ["probs", "label", "confidence", "agreement", "mutual_information"])
def test_fields_of_classification_are_refused_for_regression(field: str) -> None:
    with pytest.raises(AttributeError, match=rf"\.{field} is for classification; this is regression: use \."):
        getattr(regression(), field)


@pytest.mark.parametrize("pred", [two_draws, regression])
def test_fields_that_need_the_draws_say_so(pred: Any) -> None:
    with pytest.raises(
        ValueError, match=r"\.samples needs the draws: call predict\(\.\.\., keep_samples=True\)"
    ):
        _ = pred().samples
    with pytest.raises(ValueError, match=r"\.interval needs the draws"):
        pred().interval(0.9)
