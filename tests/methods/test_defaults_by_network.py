"""What a method leaves open is decided for the network, shown, and kept in files."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.methods.base import MOST_AT_FULL_WEIGHT
from bayesify.methods.thermostat_mcmc import COLD


def convolutional(width: int = 4) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.Conv2d(width, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2)),
    )


def plain(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


def random(net: nn.Module, method: bf.methods.Method) -> list[str]:
    return [w.name for w in bf.bayesify(net, method, num_data=10).selection.random]


def test_a_convolutional_network_is_random_in_its_last_layer() -> None:
    last = ["6.weight", "6.bias"]
    assert random(convolutional(), bf.MonteCarloVI()) == last
    assert random(convolutional(), bf.VarianceNetwork()) == last[:1]
    assert random(convolutional(), bf.VarianceNetwork(parameterization="zero_mean")) == [
        "0.weight",
        "3.weight",
    ]
    assert random(plain(), bf.VarianceNetwork()) == ["0.weight", "3.weight"]
    assert random(convolutional(), bf.DeepEnsemble(bf.MonteCarloVI(), 2)) == last
    assert random(plain(), bf.MonteCarloVI()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert len(random(convolutional(), bf.MonteCarloVI(where=bf.where.all))) == 8


@pytest.mark.parametrize("kind", [bf.MonteCarloVI, bf.DensityPropagation, bf.VarianceNetwork])
def test_the_weight_of_the_kl_by_the_number_of_random_weights(kind: type[bf.methods.Method]) -> None:
    small = bf.bayesify(plain(), kind(), num_data=10)
    assert small.kl_weight.item() == small.method.kl_weight == 1.0
    assert not any("kl_weight" in note for note in small.summary().notes)
    width = 30_000
    large = bf.bayesify(plain(width), kind(), num_data=10)
    expected = (MOST_AT_FULL_WEIGHT / sum(w.numel for w in large.selection.random)) ** (2 / 3)
    assert 0.6 < expected < 0.8
    assert large.method.kl_weight == pytest.approx(expected, rel=1e-12)
    assert large.kl_weight.item() == pytest.approx(expected)
    (note,) = [note for note in large.summary().notes if "kl_weight" in note]
    assert note.startswith("chosen for this network") and f"kl_weight={expected:.3g}" in note
    given = bf.bayesify(plain(width), kind(kl_weight=1.0), num_data=10)
    assert given.method.kl_weight == 1.0
    tempered = bf.bayesify(plain(), kind(kl_weight=0.5), num_data=10).summary().notes
    assert [note for note in tempered if "kl_weight" in note] == ["kl_weight 0.5"]


def test_methods_that_have_no_other_weight() -> None:
    assert bf.bayesify(plain(), bf.Point(kl_weight=None)).method.kl_weight == 1.0


@pytest.mark.parametrize(
    ("net", "prior"),
    [
        (plain(), "normal"),
        (convolutional(), "normal"),
        (plain(30_000), "normal"),
        (convolutional(120), "fan_in"),
    ],
)
def test_the_prior_of_density_propagation(net: nn.Module, prior: str) -> None:
    method = bf.bayesify(net, bf.DensityPropagation(), num_data=10).method
    assert isinstance(method, bf.DensityPropagation) and isinstance(method.prior, bf.priors.Prior)
    assert method.prior.name == prior


@pytest.mark.parametrize(("net", "std"), [(plain(), 1.0), (convolutional(), 0.2)])
def test_the_prior_of_natural_gradients(net: nn.Module, std: float) -> None:
    prior = bf.bayesify(net, bf.IVON(), num_data=10).method.prior  # type: ignore[attr-defined]
    assert isinstance(prior, bf.priors.Normal) and prior.std == std


@pytest.mark.parametrize("name", ["mc_vi", "ivon", "vdp", "variance", "emp"])
def test_files_keep_what_was_decided(name: str, tmp_path: Path) -> None:
    model = bf.bayesify(convolutional(120), name, num_data=10)
    bf.save(model, tmp_path / "m.safetensors")
    again = bf.load(tmp_path / "m.safetensors", convolutional(120))
    assert again.method.options() == model.method.options()
    assert again.kl_weight == model.kl_weight
    assert [w.name for w in again.selection.random] == [w.name for w in model.selection.random]


def test_components_have_no_penalty_by_default() -> None:
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    model = bf.bayesify(plain(), bf.EnsemblePatching(3))  # without num_data
    loss = model.loss(x, y)
    assert loss.kl == 0
    assert loss.total == loss.nll


def test_the_prior_of_the_paper_can_be_had() -> None:
    """Σ (τ p_k / 2) ‖M_k‖² over patched and Σ (τ / 2) ‖M‖² over the others."""
    method = bf.EnsemblePatching(3, prior_precision=1.0)
    assert method.l2 is None and method.needs_num_data
    model = bf.bayesify(plain(), method, num_data=10)
    shared = sum(model.net.get_parameter(n).square().sum() for n in ("0.weight", "0.bias"))
    patched = [model.net.get_parameter(n) for n in ("1.weight", "1.bias", "3.weight", "3.bias")]
    centroids = [*patched, *model.posterior.components.parameters()]
    expected = 0.5 * shared + 0.5 / 3 * sum(c.square().sum() for c in centroids)
    torch.testing.assert_close(model.kl(), expected)


@pytest.mark.parametrize("options", [{"kl": "l2"}, {"std": 0.1, "learn_std": True}, {"mixing": "learned"}])
def test_where_the_kl_is_asked_for_there_is_a_prior(options: dict[str, object]) -> None:
    method = bf.EnsemblePatching(3, **options)  # type: ignore[arg-type]
    assert (method.l2, method.prior_precision) == (None, 1.0)


@pytest.mark.parametrize(
    ("num_data", "likelihood", "given", "temperature"),
    [
        (10, "categorical", None, COLD),
        (42, "categorical", None, 1.0),  # as many weights as examples
        (10, "bernoulli", None, 1.0),
        (10, "normal", None, 1.0),
        (10, "categorical", 1.0, 1.0),
        (100, "categorical", 0.3, 0.3),
    ],
)
def test_the_temperature_of_a_chain(
    num_data: int, likelihood: str, given: float | None, temperature: float
) -> None:
    """Cold for classes where more weights are random than there are examples, as soon as their number is known."""
    net = nn.Sequential(nn.Linear(3, 5), nn.GroupNorm(1, 5), nn.ReLU(), nn.Linear(5, 2))
    assert sum(p.numel() for p in net.parameters()) == 42
    model = bf.bayesify(net, bf.ThermostatMCMC(temperature=given), likelihood)
    assert model.method.temperature == given
    model.num_data = num_data
    assert model.method.temperature == temperature
    assert model.optimizer(num_steps=None).param_groups[0]["temperature"] == temperature
    said = f"temperature {temperature:.3g}: draws are of a cold posterior"
    assert (said in model.summary().notes) == (temperature < 1)


def test_the_temperature_is_kept_in_files(tmp_path: Path) -> None:
    """What was decided stays, also with other data; the members of an ensemble have it, too."""
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model = bf.bayesify(net, bf.DeepEnsemble(bf.ThermostatMCMC(), 2), num_data=10)
    assert model.method.method.temperature == COLD
    bf.save(model, tmp_path / "model.safetensors")
    loaded = bf.load(
        tmp_path / "model.safetensors", nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    )
    loaded.num_data = 10**6
    assert loaded.method.method.temperature == COLD
