"""Operators and the rarer rules in one compiled graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import propagate, random_moments
from torch import Tensor, nn

import bayesify as bf


def _powered(x: Any) -> Any:
    x = x.clone()
    x **= 2
    return x


@pytest.mark.parametrize(
    "function",
    [
        *(lambda x: 1 - x, lambda x: 2 / x, lambda x: 2**x, lambda x: x**3, _powered, lambda x: +x),
        *(lambda x: -x, lambda x: abs(x), lambda x: 1 + x, lambda x: 2 * x, lambda x: x[1:] - x[:-1]),
        *(lambda x: torch.ones(3).double() - x, lambda x: torch.ones(3).double() @ x),
    ],
)
def test_an_operator_is_traced(function: Callable[[Any], Any]) -> None:
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        return tuple(propagate(function, bf.Moments(mean, var)))

    x = random_moments(3)
    for mine, expected in zip(compiled(*x), propagate(function, x), strict=True):
        torch.testing.assert_close(mine, expected)


class Transformer(nn.Module):
    """A spatial transformer, bags of words and distances to centres in one."""

    def __init__(self) -> None:
        super().__init__()
        self.locate, self.conv, self.head = nn.Linear(36, 6), nn.Conv2d(1, 2, 3, padding=1), nn.Linear(74, 3)
        self.words, self.centres = nn.EmbeddingBag(5, 4), nn.Parameter(torch.randn(2, 4))

    def forward(self, x: Any, words: Tensor) -> Any:
        theta = 0.1 * self.locate(x.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        image = F.local_response_norm(self.conv(F.grid_sample(x, grid, align_corners=False)), 2)
        words = self.words(words)
        near = torch.exp(-torch.cdist(words, self.centres))
        gate = words.cumprod(1)[:, -1:] + words.prod(1, keepdim=True)
        return self.head(torch.cat([image.flatten(1), near], 1)) * (1 - gate)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of what vmap takes one by one
def test_a_network_of_rarer_operations_compiles_whole() -> None:
    torch._dynamo.reset()
    model = bf.bayesify(Transformer(), bf.DensityPropagation(), num_data=10).eval()
    inputs = torch.randn(2, 1, 6, 6), torch.tensor([[0, 1, 1], [2, 3, 4]])
    with torch.no_grad():
        eager = model(inputs)
    result = torch.compile(model, fullgraph=True, backend="aot_eager")(inputs)
    torch.testing.assert_close(result.mean, eager.mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.var, eager.var, rtol=1e-3, atol=1e-9)
    (result.mean.sum() + result.var.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.posterior.parameters())
