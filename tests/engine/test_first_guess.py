"""Regressions in any units: noise and output bias start from the first batches, once."""

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf

METHODS = ("point", "mc_vi", "emp", "ecmp", "vdp", "variance", "atmc", "mc_dropout", "deep_ensemble")
X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
Y = 1000 + 50 * X[:, :1] + 20 * torch.randn(200, 1, generator=torch.Generator().manual_seed(1))


def net(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, outputs))


def batches(y: Tensor = Y, x: Tensor = X, size: int = 50) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), size, shuffle=True)


def begun(model: bf.BayesianModule, y: Tensor = Y, **options: Any) -> bf.History:
    """A run whose steps change nothing."""
    given: dict[str, Any] = {
        "epochs": 1,
        "lr": 1e-12,
        "seed": 0,
        "progress": False,
        "compile": False,
        **options,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        return bf.fit(model, batches(y), **given)


@pytest.mark.parametrize("name", METHODS)
def test_intervals_cover_targets_in_their_own_units(name: str) -> None:
    """The diabetes data, 152 ± 77: 90 % intervals covered 8 to 30 % of the test part (atmc 88 %)."""
    data = load_diabetes()
    x = torch.tensor(data.data / data.data.std(0)).float()
    y = torch.tensor(data.target).float()[:, None]
    order = torch.randperm(442, generator=torch.Generator().manual_seed(0))
    train, test = order[:350], order[350:]
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    model = bf.bayesify(plain, name, likelihood=bf.likelihood("normal", learn_std=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        history = bf.fit(model, batches(y[train], x[train]), epochs=60, lr=1e-2, seed=0, progress=False)
        low, high = model.predict(x[test], 50, keep_samples=True).interval(0.9)
    assert any("the noise std starts from them, the output bias is moved" in note for note in history.notes)
    cover = ((y[test] >= low) & (y[test] <= high)).float().mean()
    assert 0.8 <= cover <= 0.97


@pytest.mark.parametrize("name", [*METHODS, "members"])
def test_noise_and_bias_start_from_the_data(name: str) -> None:
    """The mean error of every network at its centre becomes 0, of every component, too."""
    method = bf.EnsemblePatching(3, "member", spread=0.0) if name == "members" else name
    model = bf.bayesify(net(), method, bf.likelihood("normal", learn_std=True))
    history = begun(model)
    assert float(model.likelihood.std.detach()) == pytest.approx(float(Y.std(correction=0)), rel=1e-4)
    mean, std = float(Y.mean()), float(Y.std(correction=0))
    assert any(f"targets are {mean:.4g} ± {std:.4g}: the noise std" in note for note in history.notes)
    for each in model.posterior.nets(model.net):
        with torch.no_grad():
            assert abs(float((Y - each(X)).mean())) < 0.01
    if name in ("emp", "members"):
        for k in range(3):
            with torch.no_grad():
                assert abs(float((Y - model.member(k)(X)).mean())) < 30  # components differ in their weights


def test_what_was_set_by_hand_stays() -> None:
    for options, std in (({}, 1.0), ({"std": 3.0}, 3.0), ({"std": 3.0, "learn_std": True}, 3.0)):
        model = bf.bayesify(net(), "point", bf.likelihood("normal", **options))
        bias = model.net[2].bias.clone()
        said: Any = pytest.warns(UserWarning, match="and the noise std is 1, its default, and stays there")
        with nullcontext() if options else said:
            history = begun(model)
        assert float(model.likelihood.std.detach()) == pytest.approx(std)
        torch.testing.assert_close(model.net[2].bias, bias)
        assert not any("targets are" in note for note in history.notes)


@pytest.mark.parametrize("times", [1e-4, 1e4])
def test_targets_that_a_network_hardly_reaches_are_said(times: float) -> None:
    """mc_vi learned nothing of such targets, which nobody saw in the coverage."""
    model = bf.bayesify(net(), "mc_vi", bf.likelihood("normal", learn_std=True))
    with pytest.warns(UserWarning, match=r"may learn no more than the mean of these. Train it on \(y - "):
        begun(model, times * Y)


def test_a_good_network_keeps_its_bias_and_starts_at_its_error() -> None:
    model = bf.bayesify(nn.Linear(3, 1), "point", bf.likelihood("normal", learn_std=True))
    with torch.no_grad():
        model.net.weight.copy_(torch.tensor([[50.0, 0.0, 0.0]]))
        model.net.bias.fill_(1001.0)
    history = begun(model)
    error = float((Y - 1001 - 50 * X[:, :1]).square().mean().sqrt())
    assert float(model.likelihood.std.detach()) == pytest.approx(error, rel=1e-4)
    assert float(model.net.bias.detach()) == pytest.approx(1001.0)
    assert any("the output bias stays" in note for note in history.notes)


def test_it_happens_once() -> None:
    model = bf.bayesify(net(), "point", bf.likelihood("normal", learn_std=True))
    begun(model)
    with torch.no_grad():
        model.likelihood.log_std.fill_(0.0)
    assert not any("targets are" in note for note in begun(model).notes)
    assert float(model.likelihood.std.detach()) == pytest.approx(1.0)


def test_other_likelihoods_and_shapes() -> None:
    student = bf.bayesify(net(), "point", "student_t")
    begun(student)
    assert float(student.likelihood.scale.detach()) == pytest.approx(
        float(Y.std(correction=0)) / 2**0.5, rel=1e-4
    )
    two = bf.bayesify(net(2), "point", "heteroscedastic")
    begun(two)
    with torch.no_grad():
        mean, var = two.likelihood.summarize(two.net(X))
    assert abs(float((Y - mean).mean())) < 0.01
    assert float(var.log().mean()) == pytest.approx(2 * float(Y.std(correction=0).log()), rel=1e-3)
    several = bf.bayesify(net(2), "point", bf.likelihood("normal", learn_std=True))
    y = torch.cat([Y, 3 - Y], 1)
    begun(several, y)
    with torch.no_grad():
        assert (y - several.net(X)).mean(0).abs().max() < 0.01
    assert float(several.likelihood.std.detach()) == pytest.approx(float(Y.std(correction=0)), rel=1e-4)
    pixels = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    image = bf.bayesify(pixels, "point", bf.likelihood("normal", learn_std=True))
    x, y = torch.randn(12, 1, 5, 5), torch.tensor([100.0, -7.0])[:, None, None] + torch.randn(12, 2, 5, 5)
    bf.fit(image, DataLoader(TensorDataset(x, y), 4), epochs=1, lr=1e-12, progress=False, compile=False)
    with torch.no_grad():
        assert (y - pixels(x)).mean((0, 2, 3)).abs().max() < 0.01


def test_weights_without_a_location_and_layers_without_a_bias_stay() -> None:
    positive = bf.MonteCarloVI(family="gamma", prior=bf.prior("gamma"))
    for plain, method in ((net(), positive), (nn.Linear(3, 1, bias=False), "point")):
        for parameter in plain.parameters():
            parameter.data.abs_()
        model = bf.bayesify(plain, method, bf.likelihood("normal", learn_std=True))
        before = [p.clone() for p in plain.parameters()]
        history = begun(model, -Y)  # weights of the gamma family keep their sign
        assert any("the output bias stays" in note for note in history.notes)
        assert float(model.likelihood.std.detach()) == pytest.approx(float(Y.std(correction=0)), rel=1e-3)
        for old, new in zip(before, plain.parameters(), strict=True):
            torch.testing.assert_close(old, new)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_resumed_run_is_the_same(ema: float | None, tmp_path: Path) -> None:
    def run(epochs: int, folder: Path) -> dict[str, Tensor]:
        model = bf.bayesify(net(), "mc_vi", bf.likelihood("normal", learn_std=True))
        options: dict[str, Any] = {"epochs": epochs, "lr": 0.01, "ema": ema, "folder": folder}
        begun(model, **options)
        return model.state_dict()

    whole = run(3, tmp_path / "whole")
    run(1, tmp_path / "parts")
    parts = run(3, tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert whole["likelihood.log_std"] > 3


@pytest.mark.parametrize("likelihood", ["normal", "student_t", "heteroscedastic"])
def test_targets_that_are_all_the_same_say_nothing_of_the_noise(likelihood: str) -> None:
    options = {"learn_std": True} if likelihood == "normal" else {}
    plain = net(2 if likelihood == "heteroscedastic" else 1)
    model = bf.bayesify(plain, "point", bf.likelihood(likelihood, **options))
    begun(model, torch.full_like(Y, 7.0))
    with torch.no_grad():
        _, var = model.likelihood.summarize(model.net(X))
    assert var.isfinite().all() and var.min() > 0.1


def test_chains_side_by_side_start_alike() -> None:
    """Every chain by itself, the others from weights of their own, lies about the mean of the targets at once."""
    method = bf.ThermostatMCMC(burn_in=0, every=1, warm_start=False)
    model = bf.bayesify(net(), method, bf.likelihood("normal", learn_std=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        bf.sample_chains(model, batches(), num_chains=3, epochs=1, lr=1e-9)
        found = model.predict(X, 12, keep_samples=True).samples
    assert float(model.likelihood.std.detach()) == pytest.approx(float(Y.std(correction=0)), rel=0.05)
    assert (found.mean((1, 2)) - Y.mean()).abs().max() < 5


def test_standardised_targets_change_nothing() -> None:
    for likelihood, outputs in (("normal", 1), ("student_t", 1), ("heteroscedastic", 2)):
        options = {"learn_std": True} if likelihood == "normal" else {}
        model = bf.bayesify(net(outputs), "point", bf.likelihood(likelihood, **options))
        before = [p.clone() for p in model.parameters()]
        history = begun(model, (Y - Y.mean()) / Y.std())
        assert not any("targets are" in note for note in history.notes)
        for old, new in zip(before, model.parameters(), strict=True):
            torch.testing.assert_close(old, new)


@pytest.mark.parametrize("members", [1, 2])
def test_a_noise_that_laplace_finds_at_the_end_is_not_said_to_stay(members: int) -> None:
    """Warnings are errors here."""
    method = bf.Laplace() if members == 1 else bf.DeepEnsemble(bf.Laplace(), num_members=members)
    model = bf.bayesify(net(), method, likelihood="normal")
    begun(model)
    assert float(model.likelihood.std) > 10
    with pytest.warns(UserWarning, match="the noise std is 1, its default, and stays there"):
        begun(bf.bayesify(net(), bf.Laplace(find_noise=False), likelihood="normal"))
