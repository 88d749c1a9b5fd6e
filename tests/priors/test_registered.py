"""A prior of one's own: a class and a line in PRIORS; used from training to a loaded file."""

import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.divergences import support
from bayesify.laws import Terms
from bayesify.laws.features import absolute
from bayesify.priors import PRIORS, Laplace, LocationScale, Prior
from bayesify.priors.base import positive


class Cauchy(Prior):
    """p(w) = 1/(π s (1 + (w/s)²)), s the scale: any log-density will do."""

    name = "cauchy"
    about = "1/(π scale (1 + (w/scale)²))"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi * self.scale) - (value / self.scale).square().log1p()


class Ridge(Prior):
    """log p(w) = −|w|³/s³ − log(2 s Γ(4/3)): a sum of features, for exact KLs."""

    name = "ridge"
    about = "exp(−|w|³/scale³), normalised"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.terms()(value)

    def terms(self) -> Terms:
        constant = -math.log(2 * self.scale * math.gamma(4 / 3))
        return Terms(constant, {absolute(3): -(self.scale**-3)})


class WideLaplace(Laplace):
    """The Laplace prior with another default: closed forms of the Laplace prior are its own."""

    name = "wide_laplace"
    about = "exp(−|w − loc|/scale)/(2 scale), scale 3 unless given"

    def __init__(self, loc: float = 0.0, scale: float = 3.0) -> None:
        super().__init__(loc, scale)


class OfLaw(LocationScale):
    """By a law of the library: options, density, terms and singularities are the form's."""

    name = "of_law"
    about = "the horseshoe prior with a location"
    law = bf.laws.Horseshoe()


OWN = {"cauchy": Cauchy, "ridge": Ridge, "wide_laplace": WideLaplace, "of_law": OfLaw}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in OWN.items():
        monkeypatch.setitem(PRIORS, name, kind)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("method", ["mc_vi", "atmc"])
def test_from_training_to_a_loaded_file(name: str, method: str, tmp_path: Path) -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))

    x = torch.randn(32, 2, generator=Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
    prior = bf.prior(name, scale=2.5)
    model = bf.bayesify(net(), {"mc_vi": bf.MonteCarloVI, "atmc": bf.ThermostatMCMC}[method](prior=prior))
    bf.fit(model, loader, epochs=2, progress=False)
    bf.save(model, tmp_path / "model.safetensors")
    loaded = bf.load(tmp_path / "model.safetensors", net())
    assert loaded.method.prior == prior and prior.options["scale"] == 2.5
    first, second = (m.predict(x, num_draws=2, generator=Generator().manual_seed(2)) for m in (model, loaded))
    assert torch.equal(first.probs, second.probs)


def test_its_estimators_follow_from_its_terms() -> None:
    """E |w|³ of a zero-mean normal is 2 √(2/π) σ³."""
    assert support("normal", "cauchy").status == "stream"
    assert support("gamma", "ridge").status == "exact"
    assert support("zero_mean_error", "ridge").status == "exact"
    assert support("laplace", "wide_laplace").status == "exact"
    assert "taylor" in support("normal", "of_law").estimators
    q = bf.family("zero_mean_error", like=torch.tensor([0.5], dtype=torch.float64))
    std = q.variance.sqrt().item()
    cross = -math.log(2 * math.gamma(4 / 3)) - 2 * math.sqrt(2 / math.pi) * std**3
    exact = -0.5 * math.log(2 * math.pi * math.e) - math.log(std) - cross
    assert bf.kl(q, bf.prior("ridge")).item() == pytest.approx(exact, rel=1e-9)


def test_rules_by_name_take_it() -> None:
    rules = bf.prior("per_layer", rules={"bias$": "cauchy"})
    assert rules.at("0.bias", torch.zeros(3)) == bf.prior("cauchy")
    assert bf.prior("per_layer", **rules.options) == rules
