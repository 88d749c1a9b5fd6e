"""A family of one's own: a law, a class and a line in FAMILIES; used from training to a loaded file."""

import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.divergences import support
from bayesify.families import FAMILIES, LocationScale, Scale
from bayesify.laws import Law, PowerOfGamma, Terms
from bayesify.laws.features import power
from bayesify.laws.noise import standard_normal, standard_uniform
from bayesify.laws.special import EULER


class GumbelLaw(Law):
    """log p(ξ) = −ξ − e^{−ξ}."""

    def log_density(self, x: Tensor) -> Tensor:
        return -x - (-x).exp()

    def sample(self, shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
        return -(-standard_uniform(shape, like, generator).log()).log()

    def neg_entropy(self) -> float:
        return -1 - EULER

    def moment(self, p: float) -> float | None:
        """E ξ² = γ² + π²/6."""
        return EULER**2 + math.pi**2 / 6 if p == 2 else None

    def odd_moment(self, p: float) -> float | None:
        """E ξ = γ."""
        return EULER if p == 1 else None


class Gumbel(LocationScale):
    """w = loc + scale ξ, skewed to the right."""

    name = "gumbel"
    about = "w = loc + scale ξ, ξ standard Gumbel"
    law = GumbelLaw()


class HalfNormalLaw(PowerOfGamma):
    """ξ = |N(0, 1)|: log p(ξ) = ½ log(2/π) − ½ ξ², ξ > 0, by `terms` and (p, k, θ) alone."""

    lower = 0.0
    power_of_gamma = (2.0, 0.5, 2.0)

    def terms(self) -> Terms:
        return Terms(0.5 * math.log(2 / math.pi), {power(2): -0.5})

    def sample(self, shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
        return standard_normal(shape, like, generator).abs()

    def neg_entropy(self) -> float:
        return 0.5 * math.log(2 / math.pi) - 0.5


class HalfNormal(Scale):
    """|w| = scale ξ; each weight keeps its sign."""

    name = "half_normal"
    about = "|w| = scale ξ, ξ = |N(0, 1)|"
    law = HalfNormalLaw()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "gumbel", Gumbel)
    monkeypatch.setitem(FAMILIES, "half_normal", HalfNormal)


@pytest.mark.parametrize(("family", "prior"), [("gumbel", "normal"), ("half_normal", "gamma")])
def test_from_training_to_a_loaded_file(family: str, prior: str, tmp_path: Path) -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))

    x = torch.randn(32, 2, generator=Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
    model = bf.bayesify(net(), bf.MonteCarloVI(family=family, prior=prior, num_kl_draws=5))
    bf.fit(model, loader, epochs=2, progress=False)
    assert family in str(model.summary())
    bf.save(model, tmp_path / "model.safetensors")
    loaded = bf.load(tmp_path / "model.safetensors", net())
    assert loaded.method.family == family
    first, second = (m.predict(x, num_draws=4, generator=Generator().manual_seed(2)) for m in (model, loaded))
    assert torch.equal(first.probs, second.probs)
    assert bf.evaluate(loaded, loader, num_draws=4)["accuracy"] > 0


def test_its_estimators_follow_from_form_and_moments() -> None:
    assert support("gumbel", "normal").status == "exact"
    assert support("gumbel", "logistic").status == "stream"
    assert support("half_normal", "normal").status == "exact"
    assert support("half_normal", "rayleigh").sampled == "repar O(1)"
    assert "negative values" in support("gumbel", "gamma").reason
    q = bf.family("gumbel", like=torch.tensor([0.5, -0.2], dtype=torch.float64), init_std=0.3)
    torch.testing.assert_close(q.mean, q.loc + EULER * q.scale)
    std = 0.3 * math.sqrt((0.25 + 0.04) / 2)
    torch.testing.assert_close(
        q.variance.sqrt(), torch.full((2,), std, dtype=torch.float64), rtol=1e-6, atol=0
    )
    second = q.variance + q.mean.square()
    exact = -1 - EULER - q.log_scale + 0.5 * second + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(bf.kl(q, bf.prior("normal")), exact.sum())


def test_sums_of_many_draws_follow_from_the_law() -> None:
    """Σξ² of n half-normal draws is χ²_n: its mean over 20,000 entries is n within 5 √(2n/20,000), rate 1e-6."""
    q = bf.family("half_normal", like=torch.ones(20_000))
    sums = q.sums([power(2)], 30, Generator().manual_seed(0))
    assert sums is not None
    assert abs(sums[0].mean().item() - 30) < 5 * math.sqrt(60 / 20_000)


def test_skewed_weights_refuse_flipout_with_the_reason() -> None:
    with pytest.raises(ValueError, match="'flipout' is not valid for the gumbel family: .*not symmetric"):
        bf.MonteCarloVI(family="gumbel", sampling="flipout")
