"""The ordinal likelihood against scipy's logistic distribution."""

import numpy as np
import pytest
import torch
from likelihood_cases import X
from scipy import stats

import bayesify as bf


def test_probabilities_are_those_of_a_logistic_variable_between_thresholds() -> None:
    """y counts the thresholds t_k = −z_k below a logistic variable, z_1 = o_1, z_k = z_{k−1} − log(1 + e^{o_k})."""
    o = 3 * torch.randn(50, 4, dtype=torch.float64)
    t = -np.cumsum(np.hstack([o[:, :1], -np.log1p(np.exp(o[:, 1:]))]), 1)
    cdf = np.hstack([np.zeros((50, 1)), stats.logistic.cdf(t), np.ones((50, 1))])
    likelihood = bf.likelihood("ordinal")
    probs, entropy = likelihood.summarize(o)
    np.testing.assert_allclose(probs.numpy(), np.diff(cdf), atol=1e-12)
    np.testing.assert_allclose(entropy.numpy(), stats.entropy(np.diff(cdf), axis=1), rtol=1e-9)
    target = torch.arange(50) % 5
    found = likelihood.log_prob(o, target).exp().numpy()
    np.testing.assert_allclose(found, np.diff(cdf)[np.arange(50), target], atol=1e-12)


def test_far_outputs_keep_their_logarithms() -> None:
    """log σ(−100) = −100 where the probability itself is 0 in float32; gradients are finite."""
    output = torch.tensor([[100.0, 0.0], [-300.0, 80.0]], requires_grad=True)
    found = bf.likelihood("ordinal").log_prob(output, torch.tensor([0, 2]))
    assert found.tolist() == pytest.approx([-100, -380], rel=1e-5)
    found.sum().backward()
    assert output.grad is not None and output.grad.isfinite().all()


def test_two_classes_are_bernoullis() -> None:
    output, target = torch.randn(6, 1), torch.tensor([0, 1, 1, 0, 1, 0])
    found = bf.likelihood("ordinal").log_prob(output, target)
    torch.testing.assert_close(found, bf.likelihood("bernoulli").log_prob(output, target[:, None].float()))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([0, 3]), "classes 0 to 3, but 2 outputs are for 3"),
        (torch.tensor([-1, 0]), "classes -1 to 0"),
        (torch.tensor([0.0, 1.0]), "needs .batch, K − 1. and whole numbers"),
        (torch.tensor([0, 1, 2]), "the target .3,."),
    ],
)
def test_wrong_targets_are_named(target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.likelihood("ordinal").nll(torch.zeros(2, 2), target)


def test_the_estimator_orders_classes() -> None:
    from bayesify.sklearn import BayesClassifier

    x = X.numpy()
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    found = BayesClassifier("point", likelihood="ordinal", epochs=80, random_state=0).fit(x, y)
    assert found.predict_proba(x).shape == (40, 3) and found.score(x, y) > 0.9
