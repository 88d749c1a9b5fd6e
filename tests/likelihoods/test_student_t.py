"""Student's t likelihood against scipy."""

import math

import numpy as np
import pytest
import torch
from likelihood_cases import SLOPE, X
from scipy import stats
from torch import Tensor, nn

import bayesify as bf

BATCH = 6
DEGREES = (0.5, 1.0, 2.5, 4.0, 30.0, 1e4)


@pytest.mark.parametrize("extra", [(), (1,), (2, 3)])
@pytest.mark.parametrize("df", DEGREES)
def test_log_prob_equals_scipy(df: float, extra: tuple[int, ...]) -> None:
    output, target = torch.randn(2, BATCH, *extra, dtype=torch.float64)
    likelihood = bf.likelihood("student_t", df=df, scale=0.3).double()
    law = stats.t(likelihood.df.item(), output.numpy(), likelihood.scale.item())
    expected = law.logpdf(target.numpy()).reshape(BATCH, -1).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(output, target).detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("df", DEGREES)
def test_distribution_function_equals_scipy(df: float) -> None:
    likelihood = bf.likelihood("student_t", df=df, scale=0.3).double()
    value = torch.cat([torch.linspace(-8, 8, 501), torch.tensor([-1e8, 1e8, -math.inf, math.inf])]).double()
    expected = stats.t.cdf(value.numpy(), likelihood.df.item(), 0.1, likelihood.scale.item())
    found = likelihood.cdf(torch.full_like(value, 0.1), value).detach().numpy()
    np.testing.assert_allclose(found[:-2], expected[:-2], atol=1e-9 if df >= 1 else 1e-5)
    np.testing.assert_allclose(found[-2:], [0, 1], atol=1e-9 if df >= 1 else 1e-5)


@pytest.mark.parametrize("df", DEGREES)
def test_mean_and_variance_equal_scipys_where_they_exist(df: float) -> None:
    likelihood = bf.likelihood("student_t", df=df, scale=0.3)
    mean, var = likelihood.summarize(torch.full((2, 1), 0.7))
    assert torch.equal(mean, torch.full((2, 1), 0.7))
    expected = stats.t.var(likelihood.df.item(), 0.7, 0.3) if df > 2 else math.inf
    assert var.detach().flatten().tolist() == pytest.approx([expected] * 2, rel=1e-5)


@pytest.mark.parametrize("df", DEGREES)
def test_interval_equals_scipys(df: float) -> None:
    likelihood = bf.likelihood("student_t", df=df, scale=0.3)
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), likelihood)
    pred = model.predict(X, keep_samples=True)
    lower, upper = pred.interval(0.9)
    law = stats.t(likelihood.df.item(), pred.mean.numpy(), likelihood.scale.item())
    np.testing.assert_allclose(lower.numpy(), law.ppf(0.05), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(upper.numpy(), law.ppf(0.95), rtol=1e-3, atol=1e-5)


def test_scale_and_degrees_are_learned_from_the_residuals() -> None:
    """Maximum likelihood, as scipy finds it."""
    torch.manual_seed(0)
    target = 0.5 * torch.distributions.StudentT(3.0).sample((400,)).double()
    likelihood = bf.likelihood("student_t", df=10.0, learn_df=True).double()
    optimizer = torch.optim.LBFGS(likelihood.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = likelihood.nll(torch.zeros_like(target), target)
        loss.backward()
        return loss

    optimizer.step(closure)
    df, _, scale = stats.t.fit(target.numpy(), floc=0.0)
    assert likelihood.options["df"] == pytest.approx(df, rel=1e-2)
    assert likelihood.options["scale"] == pytest.approx(scale, rel=1e-2)


def test_outliers_move_it_less_than_a_normal() -> None:
    """A line with a tenth of wild targets, by the same training."""
    torch.manual_seed(0)
    target = SLOPE + 0.05 * torch.randn(40, 1)
    target[::10] += 8.0
    errors = {}
    for name in ("student_t", "normal"):
        options = {"learn_std": True} if name == "normal" else {"df": 2.0}
        torch.manual_seed(1)
        model = bf.bayesify(nn.Linear(3, 1), bf.Point(), bf.likelihood(name, **options))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(400):
            optimizer.zero_grad()
            model.loss(X, target).total.backward()
            optimizer.step()
        errors[name] = float((model.predict(X).mean - SLOPE).square().mean().sqrt())
    assert errors["student_t"] < 0.1 < errors["normal"]


def test_what_is_given_is_no_parameter_and_what_is_learned_is() -> None:
    names = {name for name, _ in bf.likelihood("student_t").named_parameters()}
    assert names == {"log_scale"}
    both = bf.likelihood("student_t", learn_df=True)
    assert {name for name, _ in both.named_parameters()} == {"log_scale", "log_df"} and set(both.learned) == {
        "scale",
        "df",
    }
    assert list(bf.likelihood("student_t", learn_scale=False).parameters()) == []


@pytest.mark.parametrize("option", ["df", "scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_options_must_be_positive(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"likelihood {option}=.* must be positive and finite"):
        bf.likelihood("student_t", **{option: value})


def test_a_prediction_keeps_the_scale_it_was_made_with() -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), bf.likelihood("student_t"))
    pred = model.predict(X)
    before = pred.log_prob(SLOPE)
    with torch.no_grad():
        model.likelihood.log_scale.fill_(3.0)
    assert torch.equal(pred.log_prob(SLOPE), before)


def test_without_a_variance_parts_of_a_prediction_have_none_either() -> None:
    """Members, and chunks of draws, are merged: ∞ stays ∞."""
    method = bf.DeepEnsemble(bf.Point(), num_members=2)
    model = bf.bayesify(nn.Linear(2, 1), method, likelihood=bf.likelihood("student_t", df=1.5))
    pred = model.predict(torch.zeros(3, 2))
    for field in (pred.variance, pred.std, pred.aleatoric, pred.entropy):
        assert (field == math.inf).all()
