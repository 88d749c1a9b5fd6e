"""Draws for a single example: outputs of linear layers are sampled in the place of their weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesify as bf

S = 20_000
X = torch.tensor([[0.5, -1.0, 2.0, 0.3]])


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def converted(network: nn.Module, **options: Any) -> bf.BayesianModule:
    model = bf.bayesify(network, bf.MonteCarloVI(init_std=0.5), num_data=10, **options)
    model.predict(X, 2)  # which weights are used how often is known from now on
    return model


def numbers_drawn(model: bf.BayesianModule, x: Tensor, generator: torch.Generator | None = None) -> int:
    class Drawn(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            self.count += found.numel() if "randn" in str(func) else 0
            return found

    with Drawn() as seen:
        model.predict(x, 20, generator=generator)
    return seen.count


def test_a_draw_takes_as_many_numbers_as_there_are_outputs() -> None:
    model, weights = converted(net()), 4 * 6 + 6 + 6 * 2 + 2
    assert model.predict(X, 3).num_draws == 3 and model.predict(X, 1).num_draws == 1
    assert numbers_drawn(model, X) == 20 * (6 + 2)
    assert numbers_drawn(model, X.expand(2, -1)) == 20 * weights  # examples share the weights of a draw
    assert numbers_drawn(model, X, torch.Generator().manual_seed(0)) == 20 * weights  # and so do seeded calls


@pytest.mark.parametrize("name", ["plain", "tokens", "shared"])
def test_the_law_is_that_of_draws_of_the_weights(name: str) -> None:
    """Mean, covariance of the outputs and P(y₀ > y₁) of S draws, both ways; 8 numbers, each within 5.6 standard errors
    of the difference: failure rate 1e-6 for normal estimates."""

    class Tokens(nn.Module):  # two rows share the weights of a draw
        def __init__(self) -> None:
            super().__init__()
            self.map, self.out = nn.Linear(2, 3), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.map(x.view(-1, 2, 2)).relu().flatten(1))

    class Shared(nn.Module):  # one layer, twice
        def __init__(self) -> None:
            super().__init__()
            self.map, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.map(self.map(x).tanh()))

    torch.manual_seed(0)
    network = {"plain": net, "tokens": Tokens, "shared": Shared}[name]()
    model = converted(network, likelihood="normal")
    torch.manual_seed(1)
    ours = model.predict(X, S, keep_samples=True).samples[:, 0]
    seeded = torch.Generator().manual_seed(2)
    drawn = model.predict(X, S, keep_samples=True, generator=seeded).samples[:, 0]

    def features(y: Tensor) -> Tensor:
        centred = y - drawn.mean(0)
        products = [centred[:, 0].square(), centred[:, 1].square(), centred[:, 0] * centred[:, 1]]
        return torch.stack([*y.unbind(1), *products, (y[:, 0] > y[:, 1]).to(y)], 1).double()

    a, b = features(ours), features(drawn)
    error = ((a.var(0) + b.var(0)) / S).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() < 5.6 * error).all(), (a.mean(0) - b.mean(0)) / error
    # draws are independent: lag-one products of S draws have the standard error var / √S
    centred = ours - ours.mean(0)
    assert ((centred[1:] * centred[:-1]).mean(0).abs() < 5.6 * ours.var(0) / S**0.5).all()


def test_weights_of_mean_zero_have_outputs_of_mean_zero() -> None:
    """S outputs of one layer: mean 0 within 5.6 standard errors, variance Σ w² x² + b² within 5.6 √(2/S) of it."""
    layer = nn.Linear(4, 3)
    method = bf.VarianceNetwork(
        parameterization="zero_mean", sampling="draw", biases=True, where=bf.where.linear
    )
    model = bf.bayesify(layer, method, likelihood="normal", num_data=10)
    model.predict(X, 2)
    y = model.predict(X, S, keep_samples=True).samples[:, 0]
    var = ((layer.weight * X).square().sum(1) + layer.bias.square()).detach()
    assert (y.mean(0).abs() < 5.6 * (var / S).sqrt()).all()
    assert ((y.var(0) / var - 1).abs() < 5.6 * (2 / S) ** 0.5).all()


def test_a_network_that_refuses_gets_draws_of_all_weights() -> None:
    class Sometimes(nn.Module):
        twice = False

        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.map(x)
            return self.map(y) if self.twice else y

    model = converted(Sometimes())
    assert numbers_drawn(model, X) == 20 * 4
    model.net.twice = True
    assert numbers_drawn(model, X) == 20 * (4 + 20)  # found out, and drawn again
    assert model.posterior.whole_draws and not model.posterior.vmap_refusal
    assert numbers_drawn(model, X) == 20 * 20


def test_a_call_that_fails_leaves_no_trace() -> None:
    model = converted(net())
    with pytest.raises(RuntimeError, match="shapes"):
        model.predict(torch.randn(3, 5))
    with pytest.raises(RuntimeError, match="shapes"):
        model.predict(torch.randn(1, 5))
    assert not model.posterior.vmap_refusal
    assert not model.posterior.whole_draws
    assert numbers_drawn(model, X) == 20 * (6 + 2)
