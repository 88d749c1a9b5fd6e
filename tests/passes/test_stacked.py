"""Convolutions as matrix products and batch norm as a multiply-add give what the operations give."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bayesify.passes.stacked import ACTIVATIONS, Stacked

OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2)},
    {"padding": "same"},
    {"dilation": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("biased", [True, False])
def test_the_same_output_for_every_draw(options: dict, batch: int, biased: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(batch, 3, 7, 8, dtype=torch.float64)
    weight = torch.randn(4, 5, 3, 3, 1, dtype=torch.float64)  # (draws, out, in, tall, broad)
    bias = torch.randn(4, 5, dtype=torch.float64)
    with Stacked(True, False):
        stacked = torch.func.vmap(lambda w, b: F.conv2d(x, w, b if biased else None, **options))(weight, bias)
    for i in range(4):
        expected = F.conv2d(x, weight[i], bias[i] if biased else None, **options)
        torch.testing.assert_close(stacked[i], expected)


def test_grouped_convolutions_are_left_alone() -> None:
    x, weight = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    with Stacked(True, False):
        inside = F.conv2d(x, weight, groups=4)
    assert torch.equal(inside, F.conv2d(x, weight, groups=4))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (3, 4, 5, 6)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_batch_norm_by_running_statistics(shape: tuple[int, ...], affine: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    mean, var = torch.randn(4), torch.rand(4) + 0.5
    weight, bias = torch.randn(7, 4), torch.randn(7, 4)  # (draws, channels)
    if dtype == torch.float64:
        mean, var, weight, bias = (t.double() for t in (mean, var, weight, bias))

    def one(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, mean, var, w if affine else None, b if affine else None, eps=1e-3)

    with Stacked(False, False):
        stacked = torch.func.vmap(one, out_dims=0)(weight, bias)
    assert stacked.dtype == dtype
    for i in range(7):
        torch.testing.assert_close(stacked[i] if affine else stacked[0], one(weight[i], bias[i]))


def test_batch_norm_by_the_batch_is_left_alone() -> None:
    x, mean, var = torch.randn(5, 4), torch.zeros(4), torch.ones(4)
    with Stacked(False, False):
        inside = F.batch_norm(x, mean, var, training=True)
    assert torch.equal(inside, F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True))
    assert not torch.equal(mean, torch.zeros(4))


@pytest.mark.parametrize("function", sorted(ACTIVATIONS, key=str), ids=lambda f: f.__name__)
def test_activations_with_the_channels_at_the_end(function: Any) -> None:
    torch.manual_seed(0)
    for shape in [(7, 3, 4, 5, 6), (7, 3, 4)]:  # (draws, batch, channels, ...)
        x = torch.randn(shape)
        with Stacked(False, True):
            stacked = torch.func.vmap(function)(x)
        torch.testing.assert_close(stacked, function(x))


def test_activations_in_place_with_the_channels_at_the_end() -> None:
    x = torch.randn(2, 4, 5, 6)
    expected = F.relu(x)
    with Stacked(False, True):
        F.relu(x, inplace=True)
    assert torch.equal(x, expected)
