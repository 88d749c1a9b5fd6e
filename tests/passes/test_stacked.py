"""Convolutions as matrix products give what convolutions give."""

import pytest
import torch
import torch.nn.functional as F

from bayesify.passes.stacked import ConvAsMatmul

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
    with ConvAsMatmul():
        stacked = torch.func.vmap(lambda w, b: F.conv2d(x, w, b if biased else None, **options))(weight, bias)
    for i in range(4):
        expected = F.conv2d(x, weight[i], bias[i] if biased else None, **options)
        torch.testing.assert_close(stacked[i], expected)


def test_grouped_convolutions_are_left_alone() -> None:
    x, weight = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    with ConvAsMatmul():
        inside = F.conv2d(x, weight, groups=4)
    assert torch.equal(inside, F.conv2d(x, weight, groups=4))
