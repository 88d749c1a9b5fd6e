"""The modes of a prediction: weights at their means, one draw, an average over draws."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.evaluation.calibrate import Calibrated


def batches() -> DataLoader:
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(40, 6), torch.randint(3, (40,))), 20)


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def test_the_modes_of_an_ensemble_without_noise_are_one() -> None:
    modes = bf.inference_modes(bf.bayesify(net(), bf.DeepEnsemble(bf.Point(), 4), num_data=40), batches())
    assert modes["deterministic"]["nll"] == pytest.approx(modes["ensemble"]["nll"], abs=1e-6)


def test_deterministic_is_the_average_over_the_members_at_their_means() -> None:
    model = bf.bayesify(net(), bf.DeepEnsemble(bf.MonteCarloVI(init_std=0.3), 3), num_data=40)
    before = copy.deepcopy(model.state_dict())
    found = bf.inference_modes(model, batches(), num_draws=5)["deterministic"]["nll"]
    x, y = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    probs = torch.stack([model.member(i).eval()(x).softmax(-1) for i in range(3)]).mean(0)
    expected = -probs.gather(1, y[:, None]).log().mean().item()
    assert found == pytest.approx(expected, abs=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# -- model.predict(x, mode=) -----------------------------------------------------------------------------
METHODS: dict[str, Any] = {
    "point": bf.Point,
    "mc_vi": lambda: bf.MonteCarloVI(init_std=0.3),
    "variance": lambda: bf.VarianceNetwork(init_log_alpha=0.0),
    "zero_mean": lambda: bf.VarianceNetwork(parameterization="zero_mean"),
    "vdp": bf.DensityPropagation,
    "emp": bf.EnsemblePatching,
    "mc_dropout": bf.MCDropout,
    "deep_ensemble": lambda: bf.DeepEnsemble(bf.MonteCarloVI(init_std=0.3), 3),
    "variance ensemble": lambda: bf.DeepEnsemble(bf.VarianceNetwork(init_log_alpha=0.0), 2),
}


def model_of(name: str) -> bf.BayesianModule:
    torch.manual_seed(2)
    layers = (nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    return bf.bayesify(nn.Sequential(*layers), METHODS[name](), num_data=40)


def at_the_means(model: bf.BayesianModule, x: Tensor) -> Tensor:
    """(members, batch, classes), by the plain networks."""
    count = len(model.posterior.nets(model.net))
    nets = [model.mean_net()] if count == 1 else [model.member(i) for i in range(count)]
    return torch.stack([net.eval()(x).softmax(-1) for net in nets]).detach()


@pytest.mark.parametrize("name", METHODS)
def test_predictions_in_every_mode(name: str) -> None:
    model, x = model_of(name).train(), torch.randn(5, 6)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    means = model.predict(x, mode="deterministic", keep_samples=True)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn
    expected = at_the_means(model, x)
    torch.testing.assert_close(means.probs, expected.mean(0))
    torch.testing.assert_close(means.samples, expected)
    assert means.num_draws == len(expected)

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    one = model.predict(x, 7, mode="stochastic", generator=seeded())
    assert torch.equal(one.probs, model.predict(x, num_draws=1, generator=seeded()).probs)
    many = model.predict(x, 7, mode="ensemble", generator=seeded())
    assert torch.equal(many.probs, model.predict(x, 7, generator=seeded()).probs)
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("mode", ["deterministic", "stochastic", "ensemble"])
def test_modes_on_a_loader(mode: str) -> None:
    model = model_of("deep_ensemble")
    found = model.predict(batches(), 6, mode=mode, keep_samples=True)
    assert found.probs.shape == (40, 3)
    assert found.samples.shape == ({"ensemble": 6}.get(mode, 3), 40, 3)
    if mode == "deterministic":
        x = torch.cat([x for x, _ in batches()])
        torch.testing.assert_close(found.samples, at_the_means(model, x))


def test_the_metrics_are_those_of_the_predictions() -> None:
    model = model_of("zero_mean")
    modes = bf.inference_modes(model, batches(), num_draws=3, generator=torch.Generator().manual_seed(0))
    y = torch.cat([y for _, y in batches()])
    nll = -model.predict(batches(), mode="deterministic").log_prob(y).mean().item()
    assert modes["deterministic"]["nll"] == pytest.approx(nll, abs=1e-5)


def test_a_tempered_model_has_the_modes_too() -> None:
    x, tempered = torch.randn(5, 6), Calibrated(model_of("mc_vi"), 2.0)
    expected = tempered.model.predict(x, mode="deterministic").probs.log().div(2).softmax(-1)
    torch.testing.assert_close(tempered.predict(x, mode="deterministic").probs, expected)


def test_a_regression_at_its_means_has_noise_alone() -> None:
    torch.manual_seed(0)
    model = bf.bayesify(
        nn.Linear(6, 1), bf.MonteCarloVI(init_std=0.3), bf.likelihood("normal", std=1.0), num_data=40
    )
    x = torch.randn(5, 6)
    found = model.predict(x, mode="deterministic")
    torch.testing.assert_close(found.mean, model.mean_net()(x).detach())
    assert (found.epistemic == 0).all() and (found.aleatoric > 0).all()


def test_errors_of_modes() -> None:
    model, x = model_of("mc_vi"), torch.randn(5, 6)
    with pytest.raises(
        ValueError,
        match="mode='mean' does not exist; choose from deterministic, ensemble, linearised, stochastic",
    ):
        model.predict(x, mode="mean")
    with pytest.raises(ValueError, match="compile=True .* mode='deterministic' makes no draws"):
        model.predict(x, mode="deterministic", compile=True)
    with pytest.raises(ValueError, match="the loader is empty"):
        model.predict(iter([]), mode="deterministic")
    with pytest.raises(TypeError, match="unexpected keyword argument 'draws'"):
        model.predict(x, mode="deterministic", draws=3)
