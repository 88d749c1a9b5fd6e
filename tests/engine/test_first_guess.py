"""Regressions in any units: units, noise and output bias are found from the first batches, once."""

import math
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
from bayesify.weights.units import set_units

METHODS = ("point", "mc_vi", "emp", "ecmp", "vdp", "variance", "atmc", "mc_dropout", "deep_ensemble")
LATER = ("ivon", "swag", "laplace")  # components, noise or networks that do not start as those of the others
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


@pytest.mark.parametrize("name", [*METHODS, *LATER])
def test_what_is_learned_does_not_depend_on_the_units(name: str) -> None:
    """The diabetes data with nothing set but the epochs: at a std of 1e4 networks learned nothing but the mean."""
    data = load_diabetes()
    x = torch.tensor(data.data / data.data.std(0)).float()
    t = torch.tensor((data.target - data.target.mean()) / data.target.std())[:, None]
    order = torch.randperm(442, generator=torch.Generator().manual_seed(0))
    train, test = order[:300], order[300:]
    found = []
    for mean, std in ((0.0, 1.0), (0.0, 1e-4), (1e5, 1.0), (1e5, 1e4)):
        y = (mean + std * t).float()
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
        model = bf.bayesify(plain, name, "normal")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.SamplingWarning)
            history = bf.fit(model, batches(y[train], x[train]), epochs=10, seed=0, progress=False)
            p = model.predict(x[test], 50, keep_samples=True, generator=torch.Generator().manual_seed(0))
            frozen = model.freeze(50, torch.Generator().manual_seed(0))(x[test])
            net = model.member(0) if name == "deep_ensemble" else model.mean_net()
            low, high = p.interval(0.9)
        assert any("the network learns (y - mean) / std" in note for note in history.notes) == (
            mean > 0 or std < 1
        )
        torch.testing.assert_close(frozen.mean, p.mean, atol=0.2 * std, rtol=0.0)  # other masks of dropout
        assert not hasattr(net, "target_units")  # its last layer has them
        with torch.no_grad():
            assert float((net(x[test]) - p.mean).abs().mean()) < 0.3 * std
        cover = ((y[test] >= low) & (y[test] <= high)).double().mean()
        error = (p.mean.double() - y[test]).square().mean().sqrt() / std
        nll = -p.log_prob(y[test]).mean() - torch.tensor(std).log()
        found.append(torch.stack([error, cover, nll.double()]))
    assert found[0][0] < 0.8
    assert found[0][1] >= 0.8
    for each in found[1:]:  # chains of random numbers alike, rounded otherwise
        torch.testing.assert_close(each, found[0], atol=0.03, rtol=0.0)


@pytest.mark.parametrize("name", [*METHODS, "members"])
def test_noise_and_bias_start_from_the_data(name: str) -> None:
    """The mean error of every network at its centre is small, of every component, too."""
    method = bf.EnsemblePatching(3, "member", spread=0.0) if name == "members" else name
    model = bf.bayesify(net(), method, bf.likelihood("normal", learn_std=True))
    history = begun(model)
    assert float(model.likelihood.std.detach()) == pytest.approx(float(Y.std(correction=0)), rel=1e-4)
    mean, std = float(Y.mean()), float(Y.std(correction=0))
    said = f"targets are {mean:.4g} ± {std:.4g}: the network learns (y - mean) / std, and what it returns is in their"
    assert any(said in note and "; the noise std starts from them" in note for note in history.notes)
    for each in model.posterior.nets(model.net):
        with torch.no_grad():
            assert abs(float((Y - each(X)).mean())) < std / 2
    if name in ("emp", "members"):
        for k in range(3):
            with torch.no_grad():
                assert abs(float((Y - model.member(k)(X)).mean())) < 30  # components differ in their weights


def test_units_of_heads_columns_and_places() -> None:
    """y = mean + std f(x); of a log-variance, l + 2 log std. Every column has its mean, all have one std."""
    two = bf.bayesify(net(2), "point", "heteroscedastic")
    begun(two)
    mean, std = float(Y.mean()), float(Y.std(correction=0))
    torch.testing.assert_close(
        two.net.target_units, torch.tensor([[[mean, 2 * math.log(std)], [std, 1.0]]]), rtol=1e-4, atol=1e-4
    )

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net(2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.net(x)[:, :1], self.net(x)[:, 1:]

    pair = bf.bayesify(Pair(), "mc_vi", "heteroscedastic")
    begun(pair)
    rows = torch.tensor([[[mean], [std]], [[2 * math.log(std)], [1.0]]])
    torch.testing.assert_close(pair.net.target_units, rows, rtol=1e-4, atol=1e-4)
    assert (pair.predict(X).mean - Y).abs().mean() < 3 * std
    assert hasattr(pair.mean_net(), "target_units")  # no one last layer to put them into
    torch.testing.assert_close(pair.mean_net()(X)[0], pair.net(X)[0])


def test_units_go_into_files_and_copies(tmp_path: Path) -> None:
    for name in ("mc_vi", "deep_ensemble", "atmc"):
        model = bf.bayesify(net(), name, "normal", num_data=200)
        begun(model, epochs=2)
        assert "outputs are in units of the targets: f(x) · " in str(model.summary())
        bf.save(model, tmp_path / "m.safetensors")
        fresh = net()
        again = bf.load(tmp_path / "m.safetensors", fresh)
        draws = [m.predict(X, 4, generator=torch.Generator().manual_seed(0)).mean for m in (model, again)]
        assert torch.equal(*draws)
        torch.testing.assert_close(
            again.member(0)(X) if name == "deep_ensemble" else again.mean_net()(X), again.net(X)
        )
        with pytest.raises(ValueError, match="does not fit this network"):
            bf.load(tmp_path / "m.safetensors", other := nn.Linear(3, 1))
        assert not hasattr(other, "target_units")
        assert not other._forward_hooks
    paths = []
    for i, times in enumerate((1.0, 100.0, 0.0)):
        model = bf.bayesify(net(), "point", "normal")
        begun(model, times * Y if times else (Y - Y.mean()) / Y.std(), seed=i)
        paths.append(tmp_path / f"{i}.safetensors")
        bf.save(model, paths[-1])
    with torch.no_grad():
        merged = bf.merge(paths, net())
        wanted = [bf.load(path, net()).net(X) for path in paths]
        for i in range(3):
            torch.testing.assert_close(merged.member(i)(X), wanted[i])


def test_units_in_compiled_code_and_with_many_draws_of_the_last_layer() -> None:
    model = bf.bayesify(net(), bf.MonteCarloVI(num_likelihood_draws=50), "normal")
    begun(model, 1e4 * Y)
    plain, rows = model.net, model.net.target_units[0]
    inner = model.loss(X, 1e4 * Y).nll.detach()
    parts = [p.clone() for p in plain.parameters()]
    set_units([plain], torch.tensor([[[0.0], [1.0]]]))
    with torch.no_grad():
        model.likelihood.log_std.sub_(rows[1].log().squeeze())
    standard = model.loss(X, (1e4 * Y - rows[0]) / rows[1]).nll.detach() + rows[1].log()
    torch.testing.assert_close(inner, standard.squeeze(), rtol=0.02, atol=0.0)  # draws: 50 of 200 examples
    assert all(map(torch.equal, parts, plain.parameters()))
    compiled = torch.compile(plain, backend="eager")
    before = compiled(X)
    set_units([plain], torch.tensor([[[7.0], [2.0]]]))
    torch.testing.assert_close(compiled(X), 2 * before + 7)


def test_a_network_that_is_trained_keeps_its_units() -> None:
    """As does one whose output nobody knows how to rescale, which is said."""
    line = nn.Linear(3, 1)
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[5e4, 0.0, 0.0]]))
        line.bias.fill_(1e6)
    model = bf.bayesify(line, bf.Laplace(), "normal")
    bf.fit(model, batches(1e3 * Y), progress=False)
    assert not hasattr(line, "target_units")

    class Own(bf.likelihoods.Normal):
        name = "own"
        units = bf.likelihoods.Likelihood.units

    own = bf.bayesify(net(), "point", Own())
    with pytest.warns(UserWarning, match=r"may learn no more than the mean of these. Train it on \(y - "):
        begun(own, 1e4 * Y)


def test_units_for_a_loop_of_ones_own() -> None:
    model = bf.bayesify(net(), "point", "normal")
    assert "learns (y - mean) / std" in (bf.first_guess(model, batches(1e4 * Y)) or "")
    assert bf.first_guess(model, batches((Y - Y.mean()) / Y.std())) is not None  # other targets, other units
    torch.testing.assert_close(
        model.net.target_units.flatten(), torch.tensor([0.0, 1.0]), atol=0.01, rtol=0.0
    )


def test_what_was_set_by_hand_stays() -> None:
    for options, std in (
        ({"learn_std": False}, 1.0),
        ({"std": 3.0}, 3.0),
        ({"std": 3.0, "learn_std": True}, 3.0),
    ):
        model = bf.bayesify(net(), "point", bf.likelihood("normal", **options))
        bias = model.net[2].bias.clone()
        said: Any = pytest.warns(UserWarning, match="and the noise std is 1 and stays there")
        with nullcontext() if std > 1 else said:
            history = begun(model)
        assert float(model.likelihood.std.detach()) == pytest.approx(std)
        torch.testing.assert_close(model.net[2].bias, bias)
        assert not any("noise" in note for note in history.notes)


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
    assert abs(float((Y - mean).mean())) < float(Y.std()) / 2
    assert float(var.log().mean()) == pytest.approx(2 * float(Y.std(correction=0).log()), abs=0.5)
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
    assert (found.mean((1, 2)) - Y.mean()).abs().max() < Y.std() / 2


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
    assert float(model.likelihood.std.detach()) > 10
    with pytest.warns(UserWarning, match="the noise std is 1 and stays there"):
        begun(bf.bayesify(net(), bf.Laplace(find_noise=False), bf.likelihood("normal", std=1.0)))
