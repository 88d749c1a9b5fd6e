"""bf.calibrate: the minimum by scipy, known factors found again, and where the number goes from there."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

import bayesify as bf
from bayesify.evaluation.calibrate import Calibrated, best_temperature
from bayesify.predict.calibration import calibrated


def overconfident(examples: int = 400, classes: int = 4, factor: float = 3.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities `factor` times too sharp, and targets of the right ones."""
    logits = torch.randn(examples, classes)
    target = torch.distributions.Categorical(logits=logits).sample()
    return (factor * logits).log_softmax(1), target


def model(likelihood: Any = "categorical", outputs: int = 4, method: Any = None) -> bf.BayesianModule:
    net = nn.Linear(3, outputs)
    with torch.no_grad():
        net.weight.mul_(10)
    return bf.bayesify(net, method or bf.DeepEnsemble(num_members=3), likelihood, num_data=100)


def labels_of(m: bf.BayesianModule, x: Tensor, factor: float) -> Tensor:
    """Labels drawn with the model's log-probabilities times `factor`."""
    return torch.distributions.Categorical(logits=factor * m.predict(x).probs.clamp_min(1e-30).log()).sample()


# -- the number -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior_std", [None, 0.5, 0.05])
def test_the_minimum_is_that_of_scipy(prior_std: float | None) -> None:
    log_probs, target = overconfident()

    def loss(log_t: float) -> float:
        scaled = (log_probs.double() / math.exp(log_t)).log_softmax(1)
        penalty = 0.0 if prior_std is None else 0.5 * (log_t / prior_std) ** 2
        return float(nn.functional.nll_loss(scaled, target, reduction="sum")) + penalty

    found = optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert best_temperature(log_probs, target, prior_std) == pytest.approx(math.exp(found.x), rel=1e-5)


@pytest.mark.parametrize("factor", [3.0, 0.5])
def test_a_known_factor_of_the_logits_is_found(factor: float) -> None:
    """20,000 examples: the information about log T is about the variance of the logits, so 5 % is far away."""
    logits, target = overconfident(20_000, factor=factor)
    point = bf.bayesify(nn.Linear(4, 4), bf.Point())
    with torch.no_grad():
        point.net.weight.copy_(torch.eye(4))
        point.net.bias.zero_()
    assert bf.calibrate(point, [(logits, target)]) == pytest.approx(factor, rel=0.05)


def test_without_a_mistake_the_prior_keeps_the_temperature_away_from_zero() -> None:
    log_probs = torch.eye(3).mul(2).log_softmax(1)
    assert best_temperature(log_probs, torch.arange(3), None) == pytest.approx(1e-3)
    assert 0.5 < best_temperature(log_probs, torch.arange(3)) < 1


def test_a_known_variance_scale_is_found() -> None:
    """Noise of std 0.3 where the model says 0.1: the scale is 9, its standard error √(2/20,000) = 1 %; 5 of those."""
    line = bf.bayesify(nn.Linear(3, 1), bf.Point(), bf.likelihood("normal", std=0.1))
    x = torch.randn(20_000, 3)
    y = line.predict(x).mean + 0.3 * torch.randn(20_000, 1)
    assert bf.calibrate(line, [(x, y)]) == pytest.approx(9, rel=0.05)
    assert line.predict(x).std.mean() == pytest.approx(0.3, rel=0.025)


# -- a calibrated prediction ------------------------------------------------------------------------------


def test_a_tempered_prediction() -> None:
    m, x = model(), torch.randn(20, 3)
    plain = m.predict(x, keep_samples=True)
    soft = calibrated(plain, 2.0)
    expected = plain.probs.sqrt() / plain.probs.sqrt().sum(1, keepdim=True)
    assert torch.allclose(soft.probs, expected, atol=1e-6)
    assert torch.equal(soft.label, plain.label)
    assert torch.equal(soft.agreement, plain.agreement)
    assert torch.allclose(soft.samples, plain.samples.sqrt() / plain.samples.sqrt().sum(2, keepdim=True))
    assert torch.allclose(calibrated(plain, 1.0).probs, plain.probs, atol=1e-6)
    sure = plain.entropy > 1e-3
    share = plain.mutual_information / plain.entropy
    assert torch.allclose((soft.mutual_information / soft.entropy)[sure], share[sure], atol=1e-4)


def test_the_variance_of_probabilities_follows_to_first_order() -> None:
    """Draws close together: the variance of the tempered draws, up to their second order (spread / p)."""
    m, x = model("bernoulli", 1, bf.MonteCarloVI(init_std=1e-3)), 0.1 * torch.randn(20, 3)
    plain = m.predict(x, 500, keep_samples=True)
    soft = calibrated(plain, 2.0)
    assert torch.allclose(soft.variance, soft.samples.var(0), rtol=0.02, atol=0)
    assert (calibrated(plain, 20.0).variance <= 0.25).all()


def test_bernoulli_and_ignored_positions() -> None:
    m, x = model("bernoulli", 1), torch.randn(300, 3)
    plain = m.predict(x).probs
    t = bf.calibrate(m, [(x, (torch.rand(300, 1) < (0.2 * plain.logit(1e-6)).sigmoid()).long())])
    assert t is not None and t > 1.5
    assert torch.allclose(m.predict(x).probs, (plain.logit(1e-7) / t).sigmoid(), atol=1e-3)
    tokens = bf.bayesify(nn.Linear(4, 3), bf.Point(), bf.likelihood("categorical", class_dim=-1))
    labels = torch.randint(3, (6, 5))
    labels[0] = -100
    assert (bf.calibrate(tokens, [(torch.randn(6, 5, 4), labels)]) or 0) > 0
    with pytest.raises(ValueError, match="val_loader has no target that counts"):
        bf.calibrate(tokens, [(torch.randn(6, 5, 4), torch.full_like(labels, -100))])


def test_regression_scales_the_variance() -> None:
    m = bf.bayesify(nn.Linear(3, 1), bf.DeepEnsemble(num_members=4), bf.likelihood("normal", std=0.1))
    x, y = torch.randn(500, 3), torch.randn(500, 1)
    plain, before = m.predict(x, keep_samples=True), bf.evaluate(m, [(x, y)])
    scale = bf.calibrate(m, [(x, y)])
    assert scale == pytest.approx(float(((y - plain.mean).square() / plain.variance).mean()), rel=1e-5)
    wide = m.predict(x, keep_samples=True)
    assert torch.equal(wide.mean, plain.mean)
    assert torch.allclose(wide.variance, scale * plain.variance, rtol=1e-5)
    assert torch.allclose(wide.samples.var(0), scale * plain.spread, rtol=1e-3)
    assert (wide.interval()[1] > plain.interval()[1]).all()
    assert bf.evaluate(m, [(x, y)])["nll"] < before["nll"]


# -- a calibrated model -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the chain has no draws yet", "ignore:batch norm")
@pytest.mark.parametrize("method", ["point", "mc_vi", "vdp", "atmc", "variance", "deep_ensemble", "emp"])
def test_every_method_is_calibrated_and_its_file_keeps_it(method: str, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    m = bf.bayesify(copy.deepcopy(net), method, num_data=100)
    with torch.no_grad():
        m.net[2].weight.mul_(10)
    x = torch.randn(100, 3)
    y = labels_of(m, x, 0.2)
    options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0)}
    plain = m.predict(x, **options)
    t = bf.calibrate(m, [(x, y)], generator=torch.Generator().manual_seed(0))
    assert t is not None and t > 1.5
    soft = m.predict(x, generator=options["generator"].manual_seed(0))
    assert torch.equal(soft.label, plain.label)
    assert soft.log_prob(y).mean() > plain.log_prob(y).mean()
    bf.save(m, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", copy.deepcopy(net))
    assert loaded.calibration == t
    again = loaded.predict(x, generator=options["generator"].manual_seed(0)).probs
    assert torch.allclose(again, soft.probs, atol=1e-6)
    assert f"predictions are calibrated: temperature {t:.4g}" in str(loaded.summary())


def test_a_trained_overconfident_network() -> None:
    """100 noisy examples learned by heart: on others the NLL falls, ECE too, and no label changes."""
    x = torch.randn(1100, 5)
    y = (x[:, 0] + 1.5 * torch.randn(1100) > 0).long()
    net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2))
    m = bf.bayesify(net, bf.Point(), num_data=100)
    bf.fit(m, [(x[:100], y[:100])], epochs=200, lr=0.01, progress=False)
    val, test = [(x[100:600], y[100:600])], [(x[600:], y[600:])]
    raw, labels = bf.evaluate(m, test), m.predict(x).label
    loss = m.loss(x, y).total
    assert (bf.calibrate(m, val) or 0) > 2
    better = bf.evaluate(m, test)
    assert better["nll"] < 0.5 * raw["nll"]
    assert better["ece"] < 0.5 * raw["ece"]
    assert torch.equal(m.predict(x).label, labels)
    assert torch.equal(m.loss(x, y).total, loss)  # training does not see it


def test_it_is_taken_back_and_dropped_by_further_training() -> None:
    m, x = model(), torch.randn(200, 3)
    y, plain = labels_of(m, x, 0.2), m.predict(x).probs
    first = bf.calibrate(m, [(x, y)])
    assert bf.calibrate(m, [(x, y)]) == first  # fitted anew to the bare model, not on top
    assert copy.deepcopy(m).calibration == first
    with pytest.raises(ValueError, match="no target that counts"):
        bf.calibrate(m, [])
    assert m.calibration == first
    assert bf.calibrate(m, None) is None
    assert torch.equal(m.predict(x).probs, plain)
    assert "calibrated" not in str(m.summary())
    bf.calibrate(m, [(x, y)])
    bf.fit(m, [(x, y)], epochs=1, progress=False)
    assert m.calibration is None


def test_loaders_and_compiled_predictions(compile_by_tracing: None) -> None:
    m, x = model(), torch.randn(60, 3)
    y = labels_of(m, x, 0.2)
    bf.calibrate(m, list(zip(x.split(20), y.split(20), strict=True)))
    soft = m.predict(x).probs
    assert torch.allclose(m.predict(list(x.split(20)).__iter__()).probs, soft, atol=1e-6)
    assert torch.allclose(m.predict(x, compile=True).probs, soft, atol=1e-5)


def test_what_is_refused() -> None:
    m, x = model(), torch.randn(2, 3)
    with pytest.raises(ValueError, match="temperature=0 must be positive and finite"):
        calibrated(m.predict(x), 0)
    with pytest.raises(TypeError, match=r"model=Linear must be what bf.bayesify returned"):
        bf.calibrate(nn.Linear(3, 4), [])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the inputs of 2 of 2 examples"):
        bf.calibrate(m, [(x * math.nan, torch.zeros(2).long())])
    counts = bf.bayesify(nn.Linear(3, 1), bf.Point(), "poisson")
    with torch.no_grad():
        counts.net.bias.fill_(1000.0)  # e^1000 is infinite
    with pytest.raises(ValueError, match="the model predicts infinite values: there is nothing to calibrate"):
        bf.calibrate(counts, [(x, torch.zeros(2))])
    line = bf.bayesify(nn.Linear(3, 1), bf.Point(), bf.likelihood("normal", std=1.0))
    with pytest.raises(ValueError, match="variance scale came out as 0.0"):
        bf.calibrate(line, [(x, line.predict(x).mean)])
    assert isinstance(Calibrated(m, 1.0).predict(x), bf.Predictive)


@pytest.mark.parametrize("temperature", [0.2, 7.0])
def test_a_certain_prediction_stays_without_variance(temperature: float) -> None:
    """Probabilities of exactly 0 and 1 have no slope to divide by."""
    model = bf.bayesify(nn.Linear(2, 3), bf.Point())
    with torch.no_grad():
        model.net.weight.zero_()
        model.net.bias.copy_(torch.tensor([0.0, 200.0, 0.0]))
    model.calibration = temperature
    assert (model.predict(torch.zeros(1, 2)).variance == 0).all()


def test_a_calibration_that_is_no_number() -> None:
    made = bf.bayesify(nn.Linear(2, 1), bf.Point(), bf.likelihood("normal", std=1.0))
    made.calibration = "x"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="variance scale='x' must be positive and finite"):
        made.predict(torch.zeros(3, 2))
