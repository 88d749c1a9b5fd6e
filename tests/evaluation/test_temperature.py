"""Temperature scaling: the minimum by scipy, tempered predictions, and what stays as it was."""

import math

import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

import bayesify as bf
from bayesify.evaluation.temperature import Tempered, best_temperature, fit_temperature, tempered


def overconfident(examples: int = 400, classes: int = 4, factor: float = 3.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities `factor` times too sharp, and targets of the right ones."""
    logits = torch.randn(examples, classes)
    target = torch.distributions.Categorical(logits=logits).sample()
    return (factor * logits).log_softmax(1), target


def model(likelihood: str = "categorical", outputs: int = 4) -> bf.BayesianModule:
    net = nn.Linear(3, outputs)
    with torch.no_grad():
        net.weight.mul_(10)
    return bf.bayesify(net, bf.DeepEnsemble(num_members=3), likelihood)


@pytest.mark.parametrize("prior_std", [None, 0.5, 0.05])
def test_the_minimum_is_that_of_scipy(prior_std: float | None) -> None:
    log_probs, target = overconfident()

    def loss(log_t: float) -> float:
        scaled = (log_probs.double() / math.exp(log_t)).log_softmax(1)
        penalty = 0.0 if prior_std is None else 0.5 * (log_t / prior_std) ** 2
        return float(nn.functional.nll_loss(scaled, target, reduction="sum")) + penalty

    found = optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert best_temperature(log_probs, target, prior_std) == pytest.approx(math.exp(found.x), rel=1e-5)


def test_it_finds_the_factor() -> None:
    """20,000 examples: the information about log T is about the variance of the logits, so 5 % is far away."""
    log_probs, target = overconfident(20_000)
    assert best_temperature(log_probs, target) == pytest.approx(3, rel=0.05)


def test_without_a_mistake_the_prior_keeps_the_temperature_away_from_zero() -> None:
    log_probs = torch.eye(3).mul(2).log_softmax(1)
    assert best_temperature(log_probs, torch.arange(3), None) == pytest.approx(1e-3)
    assert 0.5 < best_temperature(log_probs, torch.arange(3)) < 1


def test_a_tempered_prediction() -> None:
    m, x = model(), torch.randn(20, 3)
    plain = m.predict(x)
    soft = tempered(plain, 2.0)
    expected = plain.probs.sqrt() / plain.probs.sqrt().sum(1, keepdim=True)
    assert torch.allclose(soft.probs, expected, atol=1e-6)
    assert torch.equal(soft.label, plain.label)
    assert torch.equal(soft.agreement, plain.agreement)
    assert torch.allclose(tempered(plain, 1.0).probs, plain.probs, atol=1e-6)
    sure = plain.entropy > 1e-3
    share = plain.mutual_information / plain.entropy
    assert torch.allclose((soft.mutual_information / soft.entropy)[sure], share[sure], atol=1e-4)


def test_calibration_improves_and_accuracy_stays() -> None:
    m = model()
    x = torch.randn(2000, 3)
    y = torch.distributions.Categorical(logits=0.2 * m.predict(x).probs.clamp_min(1e-30).log()).sample()
    val, test = [(x[:1000], y[:1000])], [(x[1000:], y[1000:])]
    calibrated = fit_temperature(m, val)
    assert calibrated.temperature > 2
    raw, better = bf.evaluate(m, test), bf.evaluate(calibrated, test)
    assert better["ece"] < 0.3 * raw["ece"]
    assert better["nll"] < raw["nll"]
    assert better["accuracy"] == raw["accuracy"]


def test_bernoulli_and_ignored_positions() -> None:
    m, x = model("bernoulli", 1), torch.randn(300, 3)
    y = (torch.rand(300, 1) < (0.2 * m.predict(x).probs.logit(1e-6)).sigmoid()).long()
    calibrated = fit_temperature(m, [(x, y)])
    assert calibrated.temperature > 1.5
    probs = calibrated.predict(x).probs
    assert torch.allclose(
        probs, (m.predict(x).probs.logit(1e-7) / calibrated.temperature).sigmoid(), atol=1e-3
    )
    tokens = bf.bayesify(nn.Linear(4, 3), bf.Point(), bf.likelihood("categorical", class_dim=-1))
    labels = torch.randint(3, (6, 5))
    labels[0] = -100
    assert fit_temperature(tokens, [(torch.randn(6, 5, 4), labels)]).temperature > 0


def test_regression_scales_the_standard_deviation() -> None:
    m = bf.bayesify(nn.Linear(3, 1), bf.DeepEnsemble(num_members=4), bf.likelihood("normal", std=0.1))
    x, y = torch.randn(500, 3), torch.randn(500, 1)
    calibrated = fit_temperature(m, [(x, y)])
    plain, wide = m.predict(x, keep_samples=True), calibrated.predict(x, keep_samples=True)
    t = calibrated.temperature
    assert t == pytest.approx(float(((y - plain.mean).square() / plain.variance).mean().sqrt()), rel=1e-5)
    assert torch.allclose(wide.std, t * plain.std, rtol=1e-5)
    assert torch.allclose(wide.samples.var(0, correction=0), t**2 * plain.spread, rtol=1e-3)
    assert bf.evaluate(calibrated, [(x, y)])["nll"] < bf.evaluate(m, [(x, y)])["nll"]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature=0 must be positive"):
        tempered(model().predict(torch.randn(2, 3)), 0)
    with pytest.raises(ValueError, match="needs validation data"):
        fit_temperature(model(), [])
    assert isinstance(Tempered(model(), 1.0).predict(torch.randn(2, 3)), bf.Predictive)
