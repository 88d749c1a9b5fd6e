"""A network that keeps what it computed from its weights for the next call: every draw is computed anew."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


class Cached(nn.Module):
    """As LeViT does with its attention biases in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4))
        self.cache: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.counts["calls"] = self.counts.get("calls", 0) + 1
        if self.training:
            return x + self.table.flip(0)
        if "table" not in self.cache:
            self.cache["table"] = self.table.flip(0)
        return x + self.cache["table"]


@pytest.mark.parametrize("sampling", ["draw", "local"])
def test_draws_differ_and_nothing_stays_in_the_network(sampling: str) -> None:
    net = Cached().eval()
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.all, sampling=sampling), num_data=10).eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert not torch.equal(model(x), model(x))
        assert net.cache == {} and net.counts["calls"] >= 2
        assert torch.equal(net(x), x + net.table.flip(0))


def test_moments_do_not_stay_either() -> None:
    net = Cached().eval()
    model = bf.bayesify(net, bf.DensityPropagation(where=bf.where.all), num_data=10).eval()
    x = torch.randn(2, 4)
    first, second = model(x), model(x)
    assert torch.equal(first.var, second.var) and (first.var > 0).all()
    assert torch.equal(model.mean_net()(x), x + net.table.flip(0))


def test_what_a_network_keeps_in_training_stays() -> None:
    """A term of the loss, say, that is read after the call."""

    class Kept(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.terms: dict[str, Any] = {}

        def forward(self, x: Tensor) -> Tensor:
            self.terms["norm"] = self.weight.norm()
            return super().forward(x)

    net = Kept()
    model = bf.bayesify(net, bf.MonteCarloVI(), num_data=10).train()
    model(torch.randn(2, 4))
    assert net.terms["norm"].requires_grad
