"""What a network computes before its first random weight is computed once, and only where that is safe."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf


class Counting(nn.Module):
    """A linear layer that counts its calls."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)


class Network(nn.Module):
    """`between` stands between the first two layers and the last; the last one alone is random."""

    def __init__(self, between: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.first, self.second, self.head = Counting(4, 8), Counting(8, 8), nn.Linear(8, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(self.second(F.relu(self.first(x)))))


def predict(net: nn.Module, draws: int = 6, **options: Any) -> tuple[bf.BayesianModule, Any]:
    torch.manual_seed(0)
    model = bf.bayesify(net, bf.EnsemblePatching(3, spread=1.0, where=bf.where.matching("head")), num_data=10)
    x = torch.randn(5, 4)
    generator = torch.Generator().manual_seed(0)
    result = model.predict(x, draws, batched=False, keep_samples=True, generator=generator, **options)
    weights = model.posterior.stream(0, draws, draws, generator.manual_seed(0))
    ((_, stacked),) = list(weights)
    with torch.no_grad():
        expected = [
            torch.func.functional_call(model.net, {k: v[i] for k, v in stacked.items()}, (x,)).softmax(1)
            for i in range(draws)
        ]
    return result.samples, torch.stack(expected)


def test_the_part_before_the_first_random_weight_runs_once() -> None:
    net = Network()
    samples, expected = predict(net)
    torch.testing.assert_close(samples, expected)
    assert len(expected.flatten(1).unique(dim=0)) > 1
    assert net.first.calls == net.second.calls == 1 + 6  # once, and once for each expected value
    assert "forward" not in vars(net.first) and type(net.first).forward(
        net.first, torch.ones(1, 4)
    ).shape == (1, 8)


def test_modules_that_work_in_place_are_replayed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ELU(inplace=True))
    net.add_module("head", nn.Linear(8, 3))
    samples, expected = predict(net)
    torch.testing.assert_close(samples, expected)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: x.add_(1.0),  # writes into a recorded output
        lambda x: x + 0 * torch.rand(1) + 1,  # draws numbers of its own
    ],
)
def test_unsafe_prefixes_are_computed_every_time(between: Callable[[Tensor], Tensor]) -> None:
    net = Network(between)
    samples, expected = predict(net)
    torch.testing.assert_close(samples, expected)
    assert net.first.calls == 6 + 6


def test_a_weight_used_outside_its_module_ends_the_prefix() -> None:
    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.after = nn.Linear(4, 4), Counting(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.after(F.linear(x, self.head.weight).tanh())  # the module itself is never called

    net = Outside()
    samples, expected = predict(net)
    torch.testing.assert_close(samples, expected)
    assert net.after.calls == 6 + 6


def test_another_way_through_the_network_is_computed() -> None:
    class Fickle(Network):
        turn = 0

        def forward(self, x: Tensor) -> Tensor:
            self.turn += 1
            layers = [self.first, self.second] if self.turn == 1 else [self.first, nn.Identity(), self.second]
            for layer in layers:
                x = layer(x)
            return self.head(x)

    samples, expected = predict(Fickle())
    torch.testing.assert_close(samples, expected)


def test_everything_random_leaves_nothing_to_replay() -> None:
    torch.manual_seed(0)
    model = bf.bayesify(Network(), bf.MonteCarloVI(where=bf.where.all), num_data=10)
    model.predict(torch.randn(5, 4), 3, batched=False)
    assert model.net.first.calls == 3
    one = bf.bayesify(Network(), bf.MonteCarloVI(where=bf.where.matching("head")), num_data=10)
    one.predict(torch.randn(5, 4), 4, batched=False)
    assert one.net.first.calls == 1
