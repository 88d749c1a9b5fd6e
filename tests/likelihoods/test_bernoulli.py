"""The bernoulli likelihood against scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf

BATCH = 6


@pytest.mark.parametrize("extra", [(), (1,), (3,), (2, 3)])
def test_bernoulli_equals_scipy(extra: tuple[int, ...]) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randint(2, (BATCH, *extra))
    expected = stats.bernoulli.logpmf(target.numpy(), output.double().sigmoid().numpy())
    value = bf.likelihood("bernoulli").log_prob(output, target.float())
    np.testing.assert_allclose(value.numpy(), expected.reshape(BATCH, -1).sum(1), rtol=1e-5)


def test_bernoulli_takes_targets_without_the_last_size_of_one() -> None:
    output, target = torch.randn(BATCH, 1), torch.randint(2, (BATCH,))
    likelihood = bf.likelihood("bernoulli")
    assert torch.equal(likelihood.nll(output, target), likelihood.nll(output, target[:, None]))


def test_bernoulli_takes_probabilities_as_targets() -> None:
    output, target = torch.randn(BATCH), torch.rand(BATCH)
    p = output.sigmoid()
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
    torch.testing.assert_close(bf.likelihood("bernoulli").nll(output, target), expected)


def test_bernoulli_summary_is_probability_and_entropy() -> None:
    output = torch.tensor([-60.0, -2.0, 0.0, 3.0, 60.0])
    probs, entropy = bf.likelihood("bernoulli").summarize(output)
    torch.testing.assert_close(probs, output.sigmoid())
    expected = stats.bernoulli.entropy(output.double().sigmoid().numpy())
    np.testing.assert_allclose(entropy.numpy(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("wrong", [-1.0, 2.0, math.nan])
def test_bernoulli_refuses_targets_outside_zero_to_one(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"target holds values .* in \[0, 1\]"):
        bf.likelihood("bernoulli").nll(torch.zeros(2), torch.tensor([0.0, wrong]))
