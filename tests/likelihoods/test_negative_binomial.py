"""The negative binomial likelihood against scipy."""

import numpy as np
import pytest
import torch
from scipy import special, stats

import bayesify as bf
from bayesify.laws.special import betainc

BATCH = 6


def law(rate: np.ndarray | float, dispersion: float) -> stats.rv_discrete:
    r = 1 / dispersion
    return stats.nbinom(r, r / (r + rate))


@pytest.mark.parametrize("extra", [(), (1,), (2, 3)])
@pytest.mark.parametrize("dispersion", [0.01, 0.7, 20.0])
def test_log_prob_equals_scipy(extra: tuple[int, ...], dispersion: float) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randint(9, (BATCH, *extra))
    likelihood = bf.likelihood("negative_binomial", dispersion=dispersion)
    expected = law(output.exp().numpy(), dispersion).logpmf(target.numpy()).reshape(BATCH, -1).sum(1)
    found = likelihood.log_prob(output, likelihood.check(output, target, True))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)


def test_without_dispersion_it_is_poissons() -> None:
    output, target = torch.randn(BATCH, 1), torch.randint(9, (BATCH, 1)).float()
    found = bf.likelihood("negative_binomial", dispersion=1e-8).log_prob(output, target)
    torch.testing.assert_close(found, bf.likelihood("poisson").log_prob(output, target), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1e4, 1e7])
def test_large_counts_keep_their_digits(count: float) -> None:
    target = torch.tensor([[count]])
    found = bf.likelihood("negative_binomial", dispersion=0.1).log_prob((1.1 * target).log(), target)
    assert float(found.detach()) == pytest.approx(law(1.1 * count, 0.1).logpmf(count), rel=1e-5)


@pytest.mark.parametrize("dispersion", [1e-4, 0.5, 30.0])
def test_summary_and_distribution_function_equal_scipys(dispersion: float) -> None:
    likelihood = bf.likelihood("negative_binomial", dispersion=dispersion)
    for rate in (0.01, 3.0, 500.0):
        output = torch.tensor(rate).double().log()
        mean, var = likelihood.summarize(output[None, None])
        assert (float(mean), float(var.detach())) == pytest.approx(law(rate, dispersion).stats(), rel=1e-6)
        value = torch.linspace(-2, 1200, 400).double()
        found = likelihood.cdf(output.expand_as(value), value).numpy()
        np.testing.assert_allclose(
            found, law(rate, likelihood.options["dispersion"]).cdf(value.numpy()), atol=1e-10
        )


def test_the_incomplete_beta_function_equals_scipys() -> None:
    """log B is a difference of log Γ(a + b) < 3e7, with an error of 3e7 · 2.2e-16 at most, and two more."""
    rng = np.random.RandomState(0)
    a, b = (10 ** rng.uniform(-3, 6, 4000) for _ in range(2))
    x = rng.beta(np.maximum(a, 0.1), np.maximum(b, 0.1))
    x[:4] = 0, 1, 0, 1
    found = betainc(*(torch.from_numpy(t) for t in (a, b, x))).numpy()
    np.testing.assert_allclose(found, special.betainc(a, b, x), rtol=0, atol=2e-8)


def test_dispersion_is_learned() -> None:
    """Of 4,000 counts: the estimate has a relative std of about 3.4 % at rate 5 and dispersion 0.5; six of them."""
    counts = law(5.0, 0.5).rvs(4000, random_state=0)
    target = torch.from_numpy(counts).float()[:, None]
    likelihood, rate = bf.likelihood("negative_binomial"), torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([rate, *likelihood.parameters()], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        likelihood.nll(rate.expand(4000, 1), target).backward()
        optimizer.step()
    assert float(likelihood.dispersion.detach()) == pytest.approx(0.5, rel=0.2)


def test_other_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="target holds 0.5: a negative_binomial likelihood needs counts"):
        bf.likelihood("negative_binomial").nll(torch.zeros(2, 1), torch.tensor([[1.0], [0.5]]))
