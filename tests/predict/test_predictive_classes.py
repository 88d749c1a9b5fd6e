"""Predictive of classification: hand-computed cases."""

import math

import numpy as np
import pytest
import torch
from predictive_cases import P1, P2, predictive, two_draws
from scipy import stats

import bayesify as bf


def entropy(*probs: float) -> float:
    return float(stats.entropy(probs))


def test_probabilities_are_averaged_not_logits() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.probs, torch.tensor([[0.4, 0.4, 0.2]]))
    assert pred.mean is pred.probs
    assert pred.num_draws == 2
    assert len(pred) == 1


def test_entropy_splits_into_expected_entropy_and_mutual_information() -> None:
    pred = two_draws()
    total, expected = entropy(0.4, 0.4, 0.2), (entropy(*P1) + entropy(*P2)) / 2
    assert pred.entropy.item() == pytest.approx(total, rel=1e-5)
    assert pred.aleatoric.item() == pytest.approx(expected, rel=1e-5)
    assert pred.mutual_information.item() == pytest.approx(total - expected, rel=1e-4)
    assert torch.equal(pred.epistemic, pred.mutual_information)


def test_variance_of_the_probabilities_over_draws() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.variance, 2 * torch.tensor([[0.3**2, 0.2**2, 0.1**2]]))
    torch.testing.assert_close(pred.std, pred.variance.sqrt())


def test_agreement_is_the_share_of_votes_for_the_winner() -> None:
    logits = [torch.tensor([p]).log() for p in (P1, P1, P2)]
    pred = predictive(bf.likelihood("categorical"), logits)
    torch.testing.assert_close(pred.agreement, torch.tensor([2 / 3]))
    assert pred.label.tolist() == [0]
    torch.testing.assert_close(pred.confidence, torch.tensor([0.5]))


@pytest.mark.parametrize("num_draws", [2, 5, 20])
def test_mutual_information_of_few_draws_is_short_by_one_of_them_and_knows_its_error(num_draws: int) -> None:
    """20,000 predictions of two classes, logits N(0, 0.1²): on average 1 − 1/S of that of all draws (by quadrature),
    the standard deviation √(2 / (S − 1)) of the mean, both within 4.9 standard errors (failure 1e-6); of four less."""
    n, freedom = 20_000, num_draws - 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    p = 1 / (1 + np.exp(-0.1 * nodes))
    entropies = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    full = math.log(2) - (weights * entropies).sum() / weights.sum()
    relative = {}
    for classes in (2, 4):
        generator = torch.Generator().manual_seed(0)
        logits = 0.1 * torch.randn(num_draws, n, classes, generator=generator, dtype=torch.float64)
        logits[..., 0] *= classes > 2
        pred = predictive(bf.likelihood("categorical"), [*logits])
        relative[classes] = (pred.epistemic.std() / pred.epistemic.mean()).item()
        if classes == 2:
            off = math.sqrt(2 / freedom / n)
            assert pred.epistemic.mean().item() / full == pytest.approx(1 - 1 / num_draws, rel=4.9 * off)
            torch.testing.assert_close(pred.epistemic_error, pred.epistemic * math.sqrt(2 / freedom))
    kurtosis = 3 + 12 / freedom
    assert relative[2] == pytest.approx(
        math.sqrt(2 / freedom), rel=4.9 * math.sqrt((kurtosis - 1) / n) / 2 + 0.01
    )
    assert relative[4] < 0.8 * relative[2]


def test_identical_draws_have_no_epistemic_uncertainty() -> None:
    pred = predictive(bf.likelihood("categorical"), [torch.tensor([P1]).log()] * 3)
    torch.testing.assert_close(pred.mutual_information, torch.zeros(1), rtol=0, atol=1e-6)
    assert torch.equal(pred.agreement, torch.ones(1))


def test_opposite_certain_draws_have_only_epistemic_uncertainty() -> None:
    draws = [torch.tensor([[50.0, -50.0]]), torch.tensor([[-50.0, 50.0]])]
    pred = predictive(bf.likelihood("categorical"), draws)
    torch.testing.assert_close(pred.mutual_information, torch.tensor([math.log(2)]))
    torch.testing.assert_close(pred.aleatoric, torch.zeros(1))


def test_log_prob_is_that_of_the_averaged_probabilities() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.log_prob(torch.tensor([2])), torch.tensor([0.2]).log())


def test_log_prob_is_not_changed_by_training_weights() -> None:
    likelihood = bf.likelihood("categorical", class_weight=[1.0, 2.0, 3.0])
    pred = predictive(likelihood, [torch.tensor([p]).log() for p in (P1, P2)])
    torch.testing.assert_close(pred.log_prob(torch.tensor([2])), torch.tensor([0.2]).log())


@pytest.mark.parametrize("class_dim", [1, -1])
def test_positions_of_an_example_have_their_own_uncertainty(class_dim: int) -> None:
    draws = [torch.randn(2, 5, 3) for _ in range(4)]  # (batch, positions, classes)
    likelihood = bf.likelihood("categorical", class_dim=class_dim)
    pred = predictive(likelihood, [d.movedim(-1, class_dim) for d in draws], keep=True)
    flat = predictive(bf.likelihood("categorical"), [d.reshape(10, 3) for d in draws])
    for field in ("entropy", "mutual_information", "agreement", "confidence", "label"):
        torch.testing.assert_close(getattr(pred, field).reshape(-1), getattr(flat, field))
    target = torch.randint(3, (2, 5))
    torch.testing.assert_close(pred.log_prob(target), flat.log_prob(target.reshape(-1)).reshape(2, 5).sum(1))


def test_bernoulli_by_hand() -> None:
    draws = [torch.tensor([[0.9], [0.2]]).logit(), torch.tensor([[0.4], [0.3]]).logit()]
    pred = predictive(bf.likelihood("bernoulli"), draws)
    torch.testing.assert_close(pred.probs, torch.tensor([[0.65], [0.25]]))
    assert pred.label.tolist() == [[1], [0]]
    torch.testing.assert_close(pred.confidence, torch.tensor([[0.65], [0.75]]))
    torch.testing.assert_close(pred.agreement, torch.tensor([[0.5], [1.0]]))
    expected = (entropy(0.9, 0.1) + entropy(0.4, 0.6)) / 2
    assert pred.aleatoric[0].item() == pytest.approx(expected, rel=1e-5)
    assert pred.mutual_information[0].item() == pytest.approx(entropy(0.65, 0.35) - expected, rel=1e-4)
    torch.testing.assert_close(pred.log_prob(torch.tensor([1, 0])), torch.tensor([0.65, 0.75]).log())


def test_bernoulli_predicts_one_above_a_half() -> None:
    pred = predictive(bf.likelihood("bernoulli"), [torch.tensor([0.49, 0.5, 0.51]).logit()])
    assert pred.label.tolist() == [0, 0, 1]
    torch.testing.assert_close(pred.confidence, torch.tensor([0.51, 0.5, 0.51]))


@pytest.mark.parametrize("logit", [20.0, 40.0, 200.0])
def test_a_saturated_bernoulli_has_a_finite_log_prob_of_what_it_predicts(logit: float) -> None:
    pred = predictive(bf.likelihood("bernoulli"), [torch.tensor([[logit], [-logit]])])
    log_prob = pred.log_prob(torch.tensor([[1.0], [0.0]]))
    torch.testing.assert_close(log_prob, torch.zeros(2), rtol=0, atol=1e-6)
    assert (pred.log_prob(torch.tensor([[0.0], [1.0]])) < -15).all()


def test_a_certain_classifier_has_a_finite_log_prob() -> None:
    pred = predictive(bf.likelihood("categorical"), [torch.tensor([[300.0, 0.0]])])
    assert pred.log_prob(torch.tensor([0])).item() == 0
    assert -100 < pred.log_prob(torch.tensor([1])).item() < -80


def test_interval_of_a_classifier_holds_the_draws_probabilities() -> None:
    draws = [torch.randn(3, 4) for _ in range(21)]
    lower, upper = predictive(bf.likelihood("categorical"), draws, keep=True).interval(0.8)
    probs = torch.stack(draws).softmax(2).numpy()
    np.testing.assert_allclose(lower.numpy(), np.quantile(probs, 0.1, axis=0), rtol=1e-5)
    np.testing.assert_allclose(upper.numpy(), np.quantile(probs, 0.9, axis=0), rtol=1e-5)
