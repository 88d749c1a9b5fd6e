"""Predictions of linearised networks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.passes import jacobian
from bayesify.passes.jacobian import as_output, flat, row_products
from bayesify.passes.layerwise import Factored, layer_products
from bayesify.predict.linearised import output_law
from bayesify.weights import as_call


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def exact(model: bf.BayesianModule, x: Tensor) -> Tensor:
    """diag(J Σ Jᵀ) with torch.func's Jacobian and the variances of the weights."""
    weights = {name: p.detach() for name, p in model.net.named_parameters()}
    rows = torch.func.jacrev(lambda w: torch.func.functional_call(model.net, w, (x,)))(weights)
    variances = {name: q.variance for name, q in model.posterior.distributions([*weights]).items()}
    return sum((rows[n].square() * variances[n]).flatten(2).sum(2) for n in weights)  # type: ignore[return-value]


X = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", ["mc_vi", "ivon", "vdp"])
def test_variances_of_independent_normal_weights_are_exact(method: str) -> None:
    model = bf.bayesify(net(), method, bf.likelihood("normal", std=0.1), num_data=10, example=X[:1])
    found = model.predict(X, mode="linearised")
    assert torch.allclose(found.epistemic, exact(model, X), rtol=1e-5)
    assert torch.allclose(found.mean, model.net(X), atol=1e-6)
    assert torch.allclose(found.aleatoric, torch.full((6, 2), 0.01))
    metrics = bf.evaluate(model, [(X, torch.zeros(6, 2))], mode="linearised")
    nll = -torch.distributions.Normal(found.mean, found.std).log_prob(torch.zeros(6, 2)).sum(1).mean()
    assert metrics["nll"] == pytest.approx(float(nll), rel=1e-4)


def test_narrow_weights_by_draws_have_the_linearised_variance() -> None:
    """20,000 draws: a variance has a standard error of √(2/n) of itself, five of them is a failure rate under 1e-6."""
    model = bf.bayesify(net(), bf.MonteCarloVI(init_std=0.003), bf.likelihood("normal", std=1.0), num_data=10)
    drawn = model.predict(X, 20_000, generator=torch.Generator().manual_seed(0)).epistemic
    found = model.predict(X, mode="linearised").epistemic
    assert ((drawn / found - 1).abs() < 5 * (2 / 20_000) ** 0.5 + 2e-3).all()  # and what is not linear


def test_classes_are_drawn_from_the_outputs_with_a_generator() -> None:
    model = bf.bayesify(net(), "mc_vi", num_data=10)
    seeded = torch.Generator
    first, again = (
        model.predict(X, 50, mode="linearised", generator=seeded().manual_seed(0), keep_samples=True)
        for _ in range(2)
    )
    assert torch.equal(first.probs, again.probs) and first.samples.shape == (50, 6, 2)
    assert first.mutual_information.min() > 0 and first.num_draws == 50
    loader = DataLoader(TensorDataset(X, torch.zeros(6).long()), 4)
    assert len(model.predict(loader, mode="linearised")) == 6
    members = bf.bayesify(net(), bf.DeepEnsemble(bf.MonteCarloVI(), 2), num_data=10)
    assert members.predict(X, 10, mode="linearised").num_draws == 1000


def test_probabilities_are_those_of_the_law_of_the_outputs() -> None:
    """Two classes: p is the mean of the logistic function of a normal number, by Gauss and Hermite. 1,000 draws: the
    standard error of draws whose mean is not matched, a bound, is at most 0.5 / √1000; five of them."""
    model = bf.bayesify(net(), bf.MonteCarloVI(init_std=5.0), num_data=10)
    logits = bf.bayesify(net(), bf.MonteCarloVI(init_std=5.0), "normal", num_data=10)
    law = logits.posterior.linear_law(logits.net)
    found = output_law(logits.net, law, as_call(X), logits.pick, flat(logits.net(X)).detach())
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(60))
    var = found.cov[:, 0, 0] + found.cov[:, 1, 1] - 2 * found.cov[:, 0, 1]
    margin = (found.mean[:, 0] - found.mean[:, 1])[:, None] + var.sqrt()[:, None] * nodes
    exact = (margin.sigmoid() * weights).sum(1) / weights.sum()
    assert var.min() > 1
    seeded = torch.Generator().manual_seed(0)
    probs = model.predict(X, 20, mode="linearised", generator=seeded).probs[:, 0]
    assert ((probs - exact).abs() < 5 * 0.5 / 1000**0.5).all()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (bf.MonteCarloVI(family="gamma", prior="gamma"), "family 'gamma' is not normal: use mode='ensemble'"),
        (bf.VarianceNetwork(parameterization="zero_mean"), "has no mean to linearise at"),
        (bf.Point(), r"this posterior \(PointMass\) is none"),
        (bf.EnsemblePatching(), r"this posterior \(Components\) is none"),
    ],
)
def test_what_is_not_normal_is_refused_by_name(method: Any, message: str) -> None:
    with torch.no_grad():
        plain = net()
        for p in plain.parameters():
            p.abs_().add_(0.1)
    model = bf.bayesify(plain, method, num_data=10)
    with pytest.raises(TypeError, match=message):
        model.predict(X, mode="linearised")


def test_refused_options() -> None:
    model = bf.bayesify(net(), "mc_vi", num_data=10)
    with pytest.raises(ValueError, match="augment=.* is for draws of the weights"):
        model.predict(X, mode="linearised", augment=lambda x: x)
    with pytest.raises(ValueError, match="compile=True is for draws of the weights"):
        model.predict(X, mode="linearised", compile=True)
    with pytest.raises(ValueError, match="x holds bf.Moments, an input with a variance"):
        model.predict(bf.Moments(X, X.square()), mode="linearised")


class Odd(nn.Module):
    """With what vmap cannot batch, a weight used twice, one beside linear operations, and tokens first."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.twice, self.gain = nn.Linear(1, 4), nn.Linear(4, 4), nn.Parameter(torch.ones(4))
        self.tokens = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.sum()) > 1e9:  # vmap refuses
            return x
        h = self.lift(x[:, :, None])  # (batch, 3, 4)
        h = self.twice(self.twice(h).tanh()) * self.gain
        return self.tokens(h.transpose(0, 1)).mean(0)[:, :2]


def convolution() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.Flatten(), nn.Linear(8, 2))


@pytest.mark.parametrize("make", [net, Odd, convolution])
def test_products_layer_by_layer_are_those_of_autograd(make: Any) -> None:
    torch.manual_seed(0)
    model = bf.bayesify(
        make(), bf.MonteCarloVI(where=bf.where.all), bf.likelihood("normal", std=1.0), num_data=10
    )
    law = model.posterior.linear_law(model.net)
    rows = torch.randn(6, 2, 2)
    arguments = (model.net, law.slots, law.weights, as_call(X), model.pick, rows)
    output = torch.func.jacrev(lambda w: torch.func.functional_call(model.net, w, (X,)))
    whole = {n: torch.einsum("bro,bo...->br...", rows, j) for n, j in output(law.weights).items()} \
        if make is not Odd else by_loop(model, rows)  # fmt: skip
    for products in (row_products, layer_products):
        for _, found in products(*arguments):
            for name, value in found.items():
                dense = value.dense() if isinstance(value, Factored) else value
                assert torch.allclose(dense, whole[name], atol=1e-5), name
                if isinstance(value, Factored):
                    middle = torch.rand(value.shape)
                    flat_rows = dense.flatten(2)
                    expected = (flat_rows * middle.flatten()) @ flat_rows.mT
                    assert torch.allclose(value.between(middle), expected, atol=1e-4)
                    assert torch.allclose(value.squares(), dense.square().sum((0, 1)), atol=1e-4)
    _, found = next(iter(layer_products(*arguments)))
    kinds = {name: isinstance(value, Factored) for name, value in found.items() if "weight" in name}
    assert (
        all(kinds.values())
        if make is not Odd
        else kinds == dict.fromkeys(kinds, False) | {"lift.weight": True}
    )


def by_loop(model: bf.BayesianModule, rows: Tensor) -> dict[str, Tensor]:
    named = dict(model.net.named_parameters())
    found: dict[str, list[Tensor]] = {name: [] for name in named}
    for n in range(len(X)):
        output = model.net(X[n : n + 1])[0]
        for row in rows[n]:
            grads = torch.autograd.grad(output, [*named.values()], row, retain_graph=True)
            [found[name].append(g) for name, g in zip(named, grads, strict=True)]
    return {name: torch.stack(v).unflatten(0, rows.shape[:2]) for name, v in found.items()}


def test_outputs_as_numbers_and_back() -> None:
    heads = (torch.randn(3, 2), torch.randn(3, 4, 5))
    again = as_output(flat(heads), heads)
    assert all(torch.equal(a, b) for a, b in zip(heads, again, strict=True))


def test_a_jacobian_beyond_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bf.bayesify(net(), "mc_vi", bf.likelihood("normal", std=1.0), num_data=10)
    monkeypatch.setattr(jacobian, "MOST_NUMBERS", 10)
    law = model.posterior.linear_law(model.net)
    eye = torch.eye(2).expand(6, 2, 2)
    with pytest.raises(ValueError, match="the Jacobian of one example has 64 numbers.*where=bf.where.output"):
        next(row_products(model.net, law.slots, law.weights, as_call(X), model.pick, eye))


def test_too_many_outputs_take_draws_of_the_linearised_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 draws: a variance has a standard error of √(2/n) of itself; six of them."""
    from bayesify.predict import linearised

    model = bf.bayesify(net(), "mc_vi", bf.likelihood("normal", std=1.0), num_data=10)
    monkeypatch.setattr(linearised, "MOST_OUTPUTS", 1)
    found = model.predict(X, 4_000, mode="linearised", generator=torch.Generator().manual_seed(0))
    assert ((found.epistemic / exact(model, X) - 1).abs() < 6 * (2 / 4_000) ** 0.5).all()


def test_heads_of_a_pair() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_var = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Any:
            return self.mean(x), self.log_var(x)

    model = bf.bayesify(Pair(), bf.Laplace("kron"), "heteroscedastic")
    bf.fit(model, [(X, X[:, :1])], progress=False)
    assert model.predict(X, 20).epistemic.min() > 0


def test_swag_is_linearised_at_its_mean() -> None:
    model = bf.bayesify(net(), "swag", bf.likelihood("normal", std=0.1), num_data=10)
    for _ in range(8):
        with torch.no_grad():
            for p in model.net.parameters():
                p.add_(0.1 * torch.randn_like(p))
        model.collect()
    weights = {name: w.detach() for name, w in model.posterior.mean(model.net).items()}
    plain = {name: p.detach() for name, p in model.net.named_parameters()} | weights
    rows = torch.func.jacrev(lambda w: torch.func.functional_call(model.net, {**plain, **w}, (X,)))(weights)
    cov = model.posterior.covariance.of_outputs(rows)
    found = model.predict(X, mode="linearised")
    assert torch.allclose(found.epistemic, cov.diagonal(dim1=1, dim2=2), rtol=1e-4)
    assert torch.allclose(found.mean, torch.func.functional_call(model.net, plain, (X,)), atol=1e-5)
