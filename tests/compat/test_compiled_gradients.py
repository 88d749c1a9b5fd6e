"""Compiled gradients are the eager ones. (torch 2.11 lost those of some autograd.Functions, without a word.)"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    value.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_equal_gradients(model: nn.Module, eager: Any, compiled: Any) -> None:
    """Rounding of float32 alone: the order of sums may differ."""
    torch._dynamo.reset()
    found = []
    for value in (eager, compiled):
        torch.manual_seed(1)  # the signs of a probe
        found.append(gradients(model, value()))
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        assert torch.allclose(theirs[name], gradient, rtol=1e-3, atol=1e-5 * gradient.abs().max().item()), (
            name
        )


@pytest.mark.parametrize("options", [{}, {"activation": "first_order"}, {"variance": "row"}], ids=str)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh])
def test_density_propagation(activation: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), activation(), nn.MaxPool2d(2), nn.Flatten())
    net = nn.Sequential(*layers, nn.Linear(36, 8), nn.LayerNorm(8), activation(), nn.Linear(8, 3))
    model = bf.bayesify(net, bf.DensityPropagation(**options), num_data=1000)
    x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_equal_gradients(model, lambda: model(x, target=y).total, lambda: compiled(x, target=y).total)


@pytest.mark.inductor
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_density_propagation_from_the_cache(activation: Any) -> None:
    """A second compilation finds the compiled graphs in torch's cache, and they have the same gradients."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), activation(), nn.LayerNorm(6), nn.Linear(6, 3))
    model = bf.bayesify(net, bf.DensityPropagation(), num_data=10)
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    counts = torch._dynamo.utils.counters["aot_autograd"]
    with torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fallback_random=True):
        for kind in ("autograd_cache_miss", "autograd_cache_hit"):
            torch._dynamo.reset()
            counts.clear()
            compiled = torch.compile(model, dynamic=False)
            assert_equal_gradients(
                model, lambda: model(x, target=y).total, lambda f=compiled: f(x, target=y).total
            )
            assert counts[kind] == 1, dict(counts)


EXACT = [
    bf.MonteCarloVI(),
    bf.MonteCarloVI(family="laplace", prior="laplace"),
    bf.MonteCarloVI(family="gamma", prior="gamma"),
    bf.VarianceNetwork(parameterization="layer"),
    bf.VarianceNetwork(parameterization="weight"),
    bf.VarianceNetwork(prior="student_t"),
    bf.EnsemblePatching(num_components=3, where=bf.where.all),
]


@pytest.mark.parametrize("method", EXACT, ids=repr)
def test_the_kl(method: Any) -> None:
    torch.manual_seed(0)
    model = bf.bayesify(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), method, num_data=10)
    model.loss(torch.randn(5, 4), torch.randint(3, (5,)))
    compiled = torch.compile(model.kl, backend="aot_eager", fullgraph=True)
    assert_equal_gradients(model, model.kl, compiled)


@pytest.mark.inductor
def test_drawn_weights_of_a_convolution_in_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler turns convolutions channels-last, as on a GPU; the draw is the same number for the same seed."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    torch.manual_seed(0)
    layers = (nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten())
    net = nn.Sequential(*layers, nn.Linear(8 * 16, 3))
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.matching("2.weight")), num_data=10)
    x, y = torch.randn(5, 4, 8, 8), torch.randint(3, (5,))
    model.loss(x, y)
    compiled = torch.compile(model, dynamic=False)

    def value(called: Any) -> Tensor:
        torch.manual_seed(3)
        return called(x, target=y).total

    with torch._inductor.config.patch(force_layout_optimization=True, fallback_random=True):
        assert_equal_gradients(model, lambda: value(model), lambda: value(compiled))


class Tied(nn.Module):
    """The first weight is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.again = nn.Linear(4, 4)
        self.again.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.again(self.norm(self.first(x)).relu()))


WITH_PRIOR = [
    bf.ThermostatMCMC(),
    bf.ThermostatMCMC(prior=bf.prior("normal", mean=0.5, std=2.0)),
    bf.ThermostatMCMC(prior="laplace"),
    bf.Point(prior=bf.prior("normal", std=0.3)),
]


@pytest.mark.filterwarnings("ignore:batch norm")
@pytest.mark.parametrize("method", WITH_PRIOR, ids=repr)
def test_the_loss_with_a_prior(method: Any) -> None:
    torch.manual_seed(0)
    model = bf.bayesify(Tied(), method, num_data=10)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for eager, traced in zip(model(x, target=y), compiled(x, target=y), strict=True):
        torch.testing.assert_close(eager, traced)
    assert_equal_gradients(model, lambda: model(x, target=y).total, lambda: compiled(x, target=y).total)
