"""The censored normal likelihood against scipy."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify.predict.units import in_units
from bayesify.sklearn import BayesRegressor


@pytest.mark.parametrize("extra", [(1,), (3,)])
def test_log_prob_equals_scipy(extra: tuple[int, ...]) -> None:
    """The density of what was seen, the survival function of what was censored; far out in its logarithm."""
    output, value = torch.randn(8, *extra), 3 * torch.randn(8, *extra)
    value[0] = 40.0
    seen = (torch.arange(8 * extra[0]) % 3 > 0).reshape(8, *extra)
    likelihood = bf.likelihood("censored_normal", std=0.7)
    law = stats.norm(output.numpy(), 0.7)
    expected = np.where(seen.numpy(), law.logpdf(value.numpy()), law.logsf(value.numpy())).sum(1)
    target = likelihood.check(output, torch.cat([value, seen.float()], 1), True)
    np.testing.assert_allclose(likelihood.log_prob(output, target).detach().numpy(), expected, rtol=1e-4)


def test_units_change_only_what_has_a_density() -> None:
    """y = 10 + 4 t: log p(y) = log p(t) − log 4 where it was seen, the same probability where not."""
    model = bf.bayesify(nn.Linear(2, 1), bf.MonteCarloVI(), bf.likelihood("censored_normal", std=0.5))
    x, t, seen = torch.randn(6, 2), torch.randn(6, 1), torch.tensor([1.0, 0, 1, 0, 0, 1])[:, None]
    inside = model.predict(x, 3, keep_samples=True)
    outside = in_units(inside, torch.tensor([10.0]), torch.tensor([4.0]))
    expected = inside.log_prob(torch.cat([t, seen], 1)) - seen[:, 0] * np.log(4)
    torch.testing.assert_close(outside.log_prob(torch.cat([10 + 4 * t, seen], 1)), expected)


def test_it_finds_the_mean_that_censoring_hides() -> None:
    """y ~ N(2 x, 1) censored at 1: the mean of what was recorded has slope well below 2, maximum likelihood 2 ± 0.04
    (standard error of 4,000 examples, found by simulation); six of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 1, generator=generator)
    y = 2 * x + torch.randn(4000, 1, generator=generator)
    target = torch.cat([y.clamp(max=1.0), (y < 1).float()], 1)
    slopes = {}
    for name, recorded in (("censored_normal", target), ("normal", target[:, :1])):
        net, law = nn.Linear(1, 1), bf.likelihood(name, learn_std=True)
        optimizer = torch.optim.Adam([*net.parameters(), *law.parameters()], lr=0.05)
        for _ in range(300):
            optimizer.zero_grad()
            law.nll(net(x), recorded).backward()
            optimizer.step()
        slopes[name] = net.weight.item()
        std = law.options["std"]
    assert slopes["censored_normal"] == pytest.approx(2, abs=0.24) and slopes["normal"] < 1.5 and std < 1


def test_the_estimator_takes_a_column_of_flags() -> None:
    x = np.random.RandomState(0).randn(80, 1)
    time = 100 + 30 * x[:, 0]
    y = np.stack([np.minimum(time, 120), time < 120], 1)
    found = BayesRegressor("point", likelihood="censored_normal", epochs=60, random_state=0).fit(x, y)
    mean, std = found.predict(x, return_std=True)
    assert mean.shape == std.shape == (80,)
    assert mean[time > 135].mean() > 118 and np.abs(mean - time)[time < 115].mean() < 6
    assert np.isfinite(found.predictive(x).log_prob(torch.from_numpy(y)).numpy()).all()
    with pytest.raises(
        ValueError, match="targets have 1 columns: likelihood='censored_normal' needs numbers and"
    ):
        found.fit(x, time)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.zeros(2, 1), "target has shape .2, 1.*twice as wide"),
        (torch.full((2, 2), 0.5), "holds 0.5: it says"),
    ],
)
def test_wrong_targets_are_named(target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.likelihood("censored_normal").nll(torch.zeros(2, 1), target)
