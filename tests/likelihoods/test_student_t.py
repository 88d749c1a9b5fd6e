"""Student's t likelihood against scipy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from likelihood_cases import SLOPE, X
from scipy import stats
from torch import Tensor, nn

import bayesify as bf

BATCH = 6
DEGREES = (0.5, 1.0, 2.5, 4.0, 30.0, 1e4)
FROM_FEW_TO_MANY = (0.2, 0.3, 0.5, 0.99, 2.0, 4.0, 30.0, 1e3, 1e5, 1e7, 1e8)


@pytest.mark.parametrize("extra", [(), (1,), (2, 3)])
@pytest.mark.parametrize("df", DEGREES)
def test_log_prob_equals_scipy(df: float, extra: tuple[int, ...]) -> None:
    output, target = torch.randn(2, BATCH, *extra, dtype=torch.float64)
    likelihood = bf.likelihood("student_t", df=df, scale=0.3).double()
    law = stats.t(likelihood.df.item(), output.numpy(), likelihood.scale.item())
    expected = law.logpdf(target.numpy()).reshape(BATCH, -1).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(output, target).detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("df", FROM_FEW_TO_MANY)
def test_distribution_function_equals_scipy(df: float) -> None:
    likelihood = bf.likelihood("student_t", df=df, scale=0.3).double()
    far = 10 ** torch.linspace(-9, 38, 500).double()
    value = torch.cat([torch.linspace(-8, 8, 501).double(), far, -far])
    expected = stats.t.cdf(value.numpy(), likelihood.df.item(), 0.1, likelihood.scale.item())
    found = likelihood.cdf(torch.full_like(value, 0.1), value).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.3e-11)
    assert found.min() >= 0 and found.max() <= 1


def test_distribution_function_of_one_degree_is_cauchys() -> None:
    """scipy's own is off by 2e-9 near 0."""
    value = torch.cat([10 ** torch.linspace(-12, 38, 500).double(), torch.tensor([math.inf])])
    found = bf.likelihood("student_t", df=1.0).double().cdf(torch.zeros_like(value), value).detach().numpy()
    np.testing.assert_allclose(found, 0.5 + np.arctan(value.numpy()) / math.pi, rtol=0, atol=1.3e-11)


@pytest.mark.parametrize("df", [0.2, 1.0, 4.0])
def test_log_prob_of_a_target_whose_square_overflows(df: float) -> None:
    likelihood, target = bf.likelihood("student_t", df=df), torch.tensor([1e14, 1e16, 1e20, -1e37])
    output = torch.zeros(4, requires_grad=True)
    found = likelihood.log_prob(output, target)
    expected = stats.t.logpdf(target.double().numpy(), likelihood.df.item())
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6)
    (slope,) = torch.autograd.grad(found.sum(), output)
    np.testing.assert_allclose((slope * target).numpy(), df + 1, rtol=1e-5)


def test_the_gaussian_objective_needs_a_variance() -> None:
    def loss(df: float) -> bf.Loss:
        torch.manual_seed(0)
        likelihood = bf.likelihood("student_t", df=df)
        method = bf.DensityPropagation(objective="gaussian")
        return bf.bayesify(nn.Linear(3, 1), method, likelihood, num_data=40).loss(X, SLOPE)

    output = bf.Moments(torch.tensor([[0.1]]), torch.tensor([[0.3]]))
    found = bf.likelihood("student_t", df=4.0).gaussian_log_prob(output, torch.tensor([[0.5]]))
    assert found.item() == pytest.approx(stats.norm.logpdf(0.5, 0.1, math.sqrt(0.3 + 2.0)), rel=1e-6)
    assert loss(2.5).nll.isfinite()
    with pytest.raises(ValueError, match=r"objective='gaussian' needs df above 2, for a variance: df=1\.5"):
        loss(1.5)


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
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-50, 1e50, "4", None])
def test_options_must_be_positive(option: str, value: Any) -> None:
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
