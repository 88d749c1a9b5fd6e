"""MC dropout: the network's own dropout layers kept on, or rows of its weights dropped."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

import bayesify as bf

FAILURE_RATE = 1e-6


def with_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


def without() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def test_dropout_layers_stay_on_in_eval_mode_and_are_put_back() -> None:
    model = bf.bayesify(with_layers().eval(), "mc_dropout", num_data=10)
    x = torch.randn(5, 4)
    assert not torch.equal(model(x), model(x))
    assert not model.net[2].training
    assert model.predict(x, 20).mutual_information.min() > 0
    assert "dropout layers kept on: 2" in str(model.summary())
    assert model.summary().random == []
    model.train()
    model(x)
    assert model.net[2].training


def test_the_draws_have_the_moments_of_dropout() -> None:
    """4000 draws of one linear layer behind dropout: mean and variance of Σ w_i m_i x_i / (1 − p)."""
    net = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 1, bias=False))
    model = bf.bayesify(net.eval(), bf.MCDropout(), bf.likelihood("normal", std=1.0), num_data=10)
    x = torch.randn(1, 4)
    with torch.no_grad():
        samples = model.predict(x, 4000, keep_samples=True).samples.double().flatten()
        terms = (net[1].weight * x).double().flatten()
    n, z = len(samples), stats.norm.isf(FAILURE_RATE / 2)
    assert abs(samples.mean() - terms.sum()) < z * samples.std() / n**0.5
    kurtosis = stats.kurtosis(samples.numpy(), fisher=False)
    expected = 0.3 / 0.7 * terms.square().sum()
    assert abs(samples.var() / expected - 1) < z * ((kurtosis - 1) / n) ** 0.5


@pytest.mark.parametrize("make", [with_layers, without])
def test_a_generator_makes_it_reproducible_and_files_bring_it_back(make: Any, tmp_path: Path) -> None:
    model = bf.bayesify(make(), bf.MCDropout(drop_prob=0.3), num_data=10)
    x, y = torch.randn(5, 4), torch.zeros(5).long()
    seeded = torch.Generator
    first = model.predict(x, 5, generator=seeded().manual_seed(1)).probs
    assert torch.equal(first, model.predict(x, 5, generator=seeded().manual_seed(1)).probs)
    assert not torch.equal(first, model.predict(x, 5, generator=seeded().manual_seed(2)).probs)
    state = torch.get_rng_state()
    model(x, generator=seeded().manual_seed(1))
    assert torch.equal(state, torch.get_rng_state())
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", make())
    assert torch.equal(first, loaded.predict(x, 5, generator=seeded().manual_seed(1)).probs)
    model.loss(x, y).total.backward()
    assert all(p.grad is not None for p in model.parameters())
    clone = copy.deepcopy(model)
    assert clone.predict(x, 5).mutual_information.max() > 0


@pytest.mark.parametrize("make", [with_layers, without])
def test_a_draw_is_a_deterministic_network(make: Any) -> None:
    model = bf.bayesify(make(), "mc_dropout", num_data=10)
    x = torch.randn(6, 4)
    draw = model.draw(generator=torch.Generator().manual_seed(0))
    for mode in (True, False):
        draw.train(mode)
        assert torch.equal(draw(x), draw(x))
    assert torch.equal(draw(x), model.draw(generator=torch.Generator().manual_seed(0))(x))
    assert len({tuple(model.draw()(x).detach().flatten().tolist()) for _ in range(20)}) > 1
    torch.testing.assert_close(model.mean_net().eval()(x), model.net.eval()(x))
    assert set(draw.state_dict()) == set(model.net.state_dict())


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.4), nn.Dropout2d(0.4), nn.AlphaDropout(0.4), nn.FeatureAlphaDropout(0.4)]
)
def test_masks_of_every_kind_can_be_fixed(layer: nn.Module) -> None:
    """Every example gets what the layer does to it, with one mask: units are dropped for all or for none."""
    model = bf.bayesify(nn.Sequential(layer, nn.Conv2d(6, 2, 1)), bf.MCDropout(), num_data=10)
    fixed = model.draw()[0]
    x = torch.randn(3, 6, 4, 4)
    y = fixed(x)
    assert torch.equal(y, fixed(x)) and y.shape == x.shape
    slope = fixed(torch.ones_like(x)) - fixed(torch.zeros_like(x))
    assert torch.equal(slope, slope[:1].expand_as(slope))
    assert 0 < (slope == 0).float().mean() < 1 or not (slope == 0).any()
    torch.testing.assert_close(y, x * slope + fixed(torch.zeros_like(x)))


def test_a_network_without_dropout_layers_drops_rows() -> None:
    model = bf.bayesify(without(), bf.MCDropout(drop_prob=0.5), num_data=10)
    assert model.summary().random == ["2.weight"]
    assert model.summary().overhead == 0
    kept = (model.posterior.draw(0, 50)["2.weight"] != 0).float()
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    off = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0))
    assert bf.bayesify(off, "mc_dropout", num_data=10).summary().random == ["0.weight"]


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def test_the_inputs_of_the_network_are_never_dropped() -> None:
    """Every draw sees every image; the layer that comes first is found by running the example."""
    model = bf.bayesify(convolutional(), "mc_dropout", num_data=10)
    samples = model.predict(torch.randn(50, 1, 8, 8), 200, keep_samples=True).samples
    assert samples.std(1).mean(-1).min() > 1e-6
    text = str(model.summary())
    assert "sees the inputs of the network, which are all kept: a draw that drops them sees no data" in text
    note = "of 1 weights are dropped with probability 0.05, for every example by itself"
    assert note in text
    assert "probability 0.1, " in str(bf.bayesify(without(), "mc_dropout", num_data=10).summary())

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.stem = nn.Linear(8, 3), nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.stem(x).relu())

    found = bf.bayesify(Backwards(), "mc_dropout", num_data=10, example=torch.zeros(1, 4))
    assert found.summary().random == ["head.weight"]


def test_every_example_has_its_own_units_with_the_law_of_dropout() -> None:
    """4000 equal examples in one pass, in training and in prediction: outputs Σ_i w_i m_i / (1 − p) of three hidden
    units, against the enumerated law. The threshold is that of a χ² test."""
    n, p = 4000, 0.3
    net = nn.Sequential(nn.Linear(1, 3, bias=False), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[1].weight.copy_(torch.tensor([[1.0, 2.0, 4.0]]) * (1 - p))
    model = bf.bayesify(net, bf.MCDropout(drop_prob=p), bf.likelihood("normal", std=1.0), num_data=10)
    x = torch.ones(n, 1)
    found = (model.train()(x).detach(), model.predict(x, 1, keep_samples=True).samples)
    bits = torch.tensor([[k >> i & 1 for i in range(3)] for k in range(8)]).double()
    expected = n * ((1 - p) ** bits.sum(1) * p ** (3 - bits.sum(1)))
    for values in found:
        counts = values.flatten().round().long().bincount(minlength=8).double()
        statistic = ((counts - expected).square() / expected).sum().item()
        assert len(counts) == 8 and statistic < stats.chi2.isf(FAILURE_RATE, 7)


def test_the_kl_is_the_l2_term() -> None:
    model = bf.bayesify(with_layers(), bf.MCDropout(prior_precision=3.0), num_data=10)
    expected = 1.5 * sum(p.square().sum() for p in model.net.parameters())
    torch.testing.assert_close(model.kl(), expected)
    torch.testing.assert_close(model.loss(torch.randn(5, 4), torch.zeros(5).long()).kl, expected)


def test_compiled_dropout_stays_on() -> None:
    torch._dynamo.reset()
    model = bf.bayesify(with_layers().eval(), "mc_dropout", num_data=10)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 4)
    assert not torch.equal(compiled(x), compiled(x))
    assert not model.net[2].training


def test_members_by_dropout() -> None:
    model = bf.bayesify(with_layers(), bf.DeepEnsemble(bf.MCDropout(), 2), num_data=10)
    x = torch.randn(5, 4)
    assert model.predict(x, 6).mutual_information.max() > 0
    draw = model.draw().eval()
    assert torch.equal(draw(x), draw(x))
    rows = bf.bayesify(without(), bf.DeepEnsemble(bf.MCDropout(), 2), num_data=10)
    assert rows.summary().random == ["2.weight"]  # no member drops a bias, or an input
    assert [[*member.patches] for member in rows.posterior.posteriors] == [["2.weight"], ["2.weight"]]


def test_bad_input_is_named() -> None:
    for options, message in (
        ({"drop_prob": 0.0}, "drop_prob=0.0"),
        ({"prior_precision": -1.0}, "prior_precision=-1.0 must be a number of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            bf.MCDropout(**options)
    with pytest.raises(ValueError, match="selects no weight matrix, and the network has no dropout layers"):
        bf.bayesify(nn.BatchNorm1d(3), "mc_dropout")


@pytest.mark.parametrize("make", [with_layers, without])
def test_stacked_models_run_by_vmap(make: Any) -> None:
    """torch.func puts plain tensors in the parameters' place; the KL of each model is its own."""
    models = [bf.bayesify(make(), "mc_dropout", num_data=10) for _ in range(3)]
    state = torch.func.stack_module_state(models)
    x, y = torch.randn(3, 5, 4), torch.randint(3, (3, 5))

    def kl(*state: Any) -> torch.Tensor:
        *state, x, y = state
        return torch.func.functional_call(models[0], tuple(state), (x,), {"target": y}).kl

    found = torch.func.vmap(kl, randomness="different")(*state, x, y)
    torch.testing.assert_close(found, torch.stack([model.kl() for model in models]))
