"""Several chains at once are the chains one would run one by one, and their posterior is the exact one."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.checks import NonFiniteError
from bayesify.data import Loader, Split
from bayesify.samplers import Sampler
from bayesify.samplers.warm_start import WarmStart
from bayesify.studies.diagnostics import function_values, rhat


def regression(num_data: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_data, 2, generator=generator)
    return x, x @ torch.tensor([[0.7], [-0.4]]) + torch.randn(num_data, 1, generator=generator)


def make(**options: object) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Linear(2, 1, bias=False)
    return bf.bayesify(net, bf.ThermostatMCMC(**options), likelihood=bf.likelihood("normal", std=1.0))  # type: ignore[arg-type]


def test_linear_regression_by_many_chains() -> None:
    """Full batches, noise std 1, prior std 1: the exact posterior is normal. 200 chains × 20 draws, 2 units of
    time apart: at least 1000 independent ones. 4.9 standard errors are 22 % of a variance and 0.16 std of a mean.
    """
    x, y = regression()
    model = make(mass=40.0, noise=1.0, thermostat_rate=1.0, burn_in=200, every=20)
    loader = DataLoader(TensorDataset(x, y), batch_size=40)
    bf.sample_chains(model, loader, num_chains=200, epochs=600, lr=0.1)
    draws = torch.stack([w["weight"][0] for _, w in model.posterior.each()]).double()
    assert len(draws) == 4000
    covariance = torch.linalg.inv(x.T @ x + torch.eye(2)).double()
    mean = covariance @ (x.T @ y)[:, 0].double()
    std = covariance.diagonal().sqrt()
    assert ((draws.mean(0) - mean) / std).abs().max().item() < 0.16
    assert (draws.T.cov() / covariance).flatten().tolist() == pytest.approx([1] * 4, abs=0.3)
    values = function_values(model, x[:3])
    assert values.shape == (200, 20, 3)
    assert rhat(values).max().item() < 1.1


def test_one_chain_of_many_is_that_of_the_plain_loop() -> None:
    """Chain 0 starts at the network; without noise it follows the path of a single chain."""
    x, y = regression(16)
    options = {"burn_in": 0, "every": 5, "temperature": 0.0}
    many, alone = make(**options), make(**options)
    many.num_data = alone.num_data = 16
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    bf.sample_chains(many, loader, num_chains=3, epochs=5)
    sampler = alone.optimizer()
    for _ in range(5):
        for xb, yb in loader:
            sampler.zero_grad()
            alone.loss(xb, yb).total.backward()
            sampler.step()
    torch.testing.assert_close(many.net.weight, alone.net.weight)
    assert [p.chain for p in many.posterior.store.keys] == [0, 1, 2] * 2


def test_further_chains_leave_earlier_draws() -> None:
    x, y = regression(16)
    model = make(burn_in=0, every=2, mass=40.0)
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    bf.fit(model, loader, epochs=4, progress=False)
    before = [draw["weight"] for _, draw in model.posterior.each()]
    for seed in range(2):
        bf.sample_chains(model, loader, num_chains=2, epochs=4, seed=seed)
    assert [p.chain for p in model.posterior.store.keys] == [0, 0, *[1, 2] * 2, *[3, 4] * 2]
    after = [draw["weight"] for _, draw in model.posterior.each()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=False))


def test_the_loss_is_that_of_the_model() -> None:
    """The same weight of the prior, and a noise level that is learned: one chain without temperature follows the
    plain loop, and three from the same weights do too, because the noise level follows their mean."""
    x, y = regression(16)
    loader = DataLoader(TensorDataset(x, y), batch_size=8)

    def model() -> bf.BayesianModule:
        method = bf.ThermostatMCMC(temperature=0.0, burn_in=0, every=5, kl_weight=8.0)
        net = nn.Linear(2, 1, bias=False)
        net.weight.data.fill_(0.3)
        net.reset_parameters = lambda: None  # type: ignore[method-assign]
        return bf.bayesify(net, method, bf.likelihood("normal", learn_std=True), num_data=16)

    alone, many = model(), model()
    bf.fit(alone, loader, epochs=5, lr=1e-3, progress=False)
    bf.sample_chains(many, loader, num_chains=3, epochs=5, lr=1e-3)
    torch.testing.assert_close(many.net.weight, alone.net.weight)
    torch.testing.assert_close(many.likelihood.std, alone.likelihood.std)
    assert many.likelihood.std.item() != 1.0


def test_the_looks_of_the_warm_start_see_the_mean_over_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all chains share follows the mean of their losses, in the looks as in the steps."""
    seen = []

    def turn(warm: WarmStart, sampler: Sampler, gradients: Any = None, *_: Any) -> None:
        if gradients is not None and not seen:
            (shared,) = [p for group in sampler.param_groups[1:] for p in group["params"]]
            seen.append(gradients([shared])[0])

    monkeypatch.setattr(WarmStart, "turn", turn)
    x, y = regression(16)
    net = nn.Linear(2, 1, bias=False)
    net.reset_parameters = lambda: None  # type: ignore[method-assign]
    noise = bf.likelihood("normal", learn_std=True)
    model = bf.bayesify(net, bf.ThermostatMCMC(burn_in=50, every=1), noise, num_data=16)
    (expected,) = torch.autograd.grad(model.loss(x, y).total, [*model.likelihood.parameters()])
    bf.sample_chains(model, DataLoader(TensorDataset(x, y), batch_size=16), num_chains=3, epochs=1)
    torch.testing.assert_close(seen[0], expected)


@pytest.mark.parametrize("options", [{"sampler": "sghmc", "noise": 0.0}, {"sampler": "sgld"}])
def test_divergence_before_the_first_draw(options: dict[str, object]) -> None:
    """Steps of this size double a weight many times over: no step of the burn-in draws, yet the run stops."""
    x, y = regression(16)
    model = make(**options, burn_in=2000, every=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    with pytest.raises(NonFiniteError, match=r"diverged: .* not finite after \d+ steps.*The 0 earlier draws"):
        bf.sample_chains(model, loader, num_chains=2, epochs=1000, lr=100.0)


def test_what_cannot_be() -> None:
    x, y = regression(8)
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    with pytest.raises(TypeError, match="point is no sampling method"):
        bf.sample_chains(bf.bayesify(nn.Linear(2, 1), bf.Point()), loader, num_chains=2, epochs=1)
    with pytest.raises(TypeError, match="keep='moments' holds one chain only"):
        bf.sample_chains(make(keep="moments"), loader, num_chains=2, epochs=1)
    with pytest.raises(ValueError, match="num_chains=0"):
        bf.sample_chains(make(), loader, num_chains=0, epochs=1)
    with pytest.raises(ValueError, match="num_chains=2.5 must be a whole number"):
        bf.sample_chains(make(), loader, num_chains=2.5, epochs=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="epochs=0 must be a whole number of at least 1"):
        bf.sample_chains(make(), loader, num_chains=2, epochs=0)
    with pytest.raises(ValueError, match="schedule='cos' does not exist; choose from"):
        bf.sample_chains(make(), loader, num_chains=2, epochs=1, schedule="cos")
    with pytest.raises(ValueError, match="the loader is empty"):
        bf.sample_chains(make(), [], num_chains=2, epochs=1)
    with pytest.raises(ValueError, match="loader=generator is an iterator, which has no second epoch"):
        bf.sample_chains(make(), (batch for batch in loader), num_chains=2, epochs=2)
    with pytest.warns(UserWarning, match="batch norm"):
        model = bf.bayesify(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), bf.ThermostatMCMC())
    with pytest.raises(TypeError, match="cannot have batch norm"):
        bf.sample_chains(model, loader, num_chains=2, epochs=1)


def uneven() -> tuple[bf.BayesianModule, TensorDataset]:
    """y = w + noise: 0 sixteen times, then 3 eight times. The mode is 24 / 25; a short batch that counts as much as a
    long one would make it 36 / 25."""
    net = nn.Linear(1, 1, bias=False)
    method = bf.ThermostatMCMC(temperature=0.0, burn_in=0, every=100)
    y = torch.cat([torch.zeros(16, 1), torch.full((8, 1), 3.0)])
    return bf.bayesify(net, method, bf.likelihood("normal", std=1.0), num_data=24), TensorDataset(
        torch.ones(24, 1), y
    )


@pytest.mark.parametrize(("batch", "accumulate"), [(16, 1), (8, 2), (7, 1)])
@pytest.mark.parametrize("kind", ["torch", "own", "chains"])
def test_every_example_counts_alike_however_batches_are_cut(kind: str, batch: int, accumulate: int) -> None:
    model, examples = uneven()
    loader: Any = DataLoader(examples, batch_size=batch)
    if kind == "own":
        loader = Loader(Split(*examples.tensors), batch)
    if kind == "chains":
        bf.sample_chains(model, loader, num_chains=2, epochs=200, lr=2e-4)
    else:
        bf.fit(model, loader, epochs=200, lr=2e-4, accumulate=accumulate, progress=False, compile=False)
    assert model.net.weight.item() == pytest.approx(24 / 25, abs=0.1)


class Last(nn.Module):
    """A head on the last output of a recurrent layer, or on the mean of embeddings."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.head = first, nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.first(x)
        return self.head(output.mean(1) if isinstance(output, torch.Tensor) else output[0][:, -1])


def test_networks_that_do_not_run_side_by_side() -> None:
    words, y = torch.randint(9, (8, 5)), torch.zeros(8, 1)
    layers = {
        r"side by side: torch.vmap says '.*lstm.*Use bf.fit,": (
            nn.LSTM(2, 4, batch_first=True),
            torch.randn(8, 5, 2),
        ),
        "sparse gradients: make the layer with sparse=False": (nn.Embedding(9, 4, sparse=True), words),
    }
    for message, (layer, x) in layers.items():
        model = bf.bayesify(Last(layer), bf.ThermostatMCMC(), bf.likelihood("normal", std=1.0), num_data=8)
        with pytest.raises(TypeError, match=message):
            bf.sample_chains(model, [(x, y)], num_chains=2, epochs=40)
