"""What the estimators predict, and what they refuse."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse, stats
from sklearn.datasets import make_classification

import bayesify as bf
from bayesify.sklearn import BayesClassifier, BayesRegressor
from bayesify.sklearn.rows import Scaling, distinct

QUICK: dict[str, Any] = {"epochs": 10, "num_draws": 10, "random_state": 0}
X = np.random.RandomState(0).randn(60, 3)
Y = 1000 + 200 * X[:, 0]


def test_columns_are_measured_by_their_weights() -> None:
    x, weight = np.random.RandomState(0).randn(20, 4) * [1, 1e-9, 1e9, 0] + [0, 5, 0, 0.1], np.arange(20.0)
    found, repeated = Scaling.of(x, weight), x.repeat(np.arange(20), 0)
    np.testing.assert_allclose(found.mean, repeated.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.std[:3], repeated.std(0)[:3], rtol=1e-6)
    assert found.std[3] == 1.0 and found(x)[:, 3].tolist() == [0.0] * 20


def test_equal_rows_are_one() -> None:
    x, y = np.array([[2.0], [1.0], [2.0], [2.0]]), np.array([[0.0], [0.0], [0.0], [1.0]])
    rows, targets, weight = distinct(x, y, np.array([1.0, 0.0, 0.5, 2.0]))
    assert (rows.tolist(), targets.tolist(), weight.tolist()) == ([[2.0], [2.0]], [[0.0], [1.0]], [1.5, 2.0])


def test_labels_are_what_was_given() -> None:
    y = np.where(X[:, 0] > 0.5, "yes", np.where(X[:, 0] < -0.5, "no", "perhaps"))
    found = BayesClassifier(**QUICK | {"epochs": 60}).fit(X, y)
    assert found.classes_.tolist() == ["no", "perhaps", "yes"]
    assert found.score(X, y) > 0.9
    probs = found.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)
    prediction = found.predictive(X, keep_samples=True)
    assert prediction.samples.shape == (10, 60, 3) and (prediction.epistemic >= 0).all()


def test_rare_classes_keep_their_share() -> None:
    """Where nothing tells the classes apart, one of 30 in 600 has a probability near 0.05: of 600 draws the share has
    std 0.0089, here it is exact, and what is left is what training misses."""
    x, y = np.random.RandomState(0).randn(600, 1), np.arange(600) % 20 == 0
    probs = BayesClassifier("laplace", random_state=0, num_draws=20, epochs=10).fit(x, y).predict_proba(x)
    assert probs[:, 1].mean() == pytest.approx(0.05, abs=0.02)


def test_numbers_are_in_their_own_units() -> None:
    found = BayesRegressor(random_state=0, num_draws=50, epochs=60).fit(X, Y)
    mean, std = found.predict(X, return_std=True)
    assert np.corrcoef(mean, Y)[0, 1] > 0.98 and mean.std() == pytest.approx(200, rel=0.2)
    prediction = found.predictive(X)
    np.testing.assert_allclose(std, prediction.variance.sqrt()[:, 0].numpy())
    density = prediction.log_prob(torch.from_numpy(Y)[:, None]).numpy()
    np.testing.assert_allclose(density, stats.norm(mean, std).logpdf(Y), rtol=1e-6)
    low, high = found.predict_interval(X, coverage=0.5)
    assert ((low < mean) & (mean < high)).all()
    wider = found.predict_interval(X, coverage=0.9)
    assert ((wider[0] < low) & (high < wider[1])).all()


def test_several_targets_at_once() -> None:
    y = np.stack([Y, -5 * X[:, 1]], 1)
    found = BayesRegressor(**QUICK | {"epochs": 60}).fit(X, y)
    mean, std = found.predict(X, return_std=True)
    assert mean.shape == std.shape == found.predict_interval(X)[0].shape == (60, 2)
    assert found.score(X, y) > 0.9


@pytest.mark.parametrize("likelihood", ["poisson", "student_t", "heteroscedastic"])
def test_likelihoods_by_name(likelihood: str) -> None:
    y = np.round(np.exp(1 + X[:, 0]))
    found = BayesRegressor(likelihood=likelihood, **QUICK | {"epochs": 40}).fit(
        X, y, sample_weight=1 + (y > 2)
    )
    low, high = found.predict_interval(X)
    assert np.isfinite([low, high]).all() and (low <= high).all()
    assert np.corrcoef(found.predict(X), y)[0, 1] > 0.7
    if likelihood == "poisson":
        assert (low == low.round()).all() and found.model_.likelihood.name == "poisson"


def test_awkward_tables() -> None:
    """Constant columns, one column, truth values, whole numbers, float32, other memory orders, another scale."""
    quick = BayesRegressor("point", **QUICK)
    base = quick.fit(X, Y).predict(X)
    for same in (np.asfortranarray(X), X.tolist(), X[::-1][::-1]):
        np.testing.assert_array_equal(quick.fit(same, Y).predict(same), base)
    np.testing.assert_allclose(quick.fit(1e8 * X - 1e9, Y).predict(1e8 * X - 1e9), base, rtol=1e-5)
    np.testing.assert_allclose(quick.fit(X.astype(np.float32), Y).predict(X), base, rtol=1e-3)
    constant = np.hstack([X, np.full((60, 1), 0.1)])
    assert np.isfinite(quick.fit(constant, Y).predict(constant[::-1])).all()
    assert quick.fit(X[:, :1] > 0, (100 * X[:, 0]).astype(int)).predict([[True]]) > 0
    assert quick.fit(X, np.full(60, 7.0)).predict(X) == pytest.approx(7.0, abs=0.5)
    one = BayesClassifier("point", **QUICK).fit(X[:4], ["a", "b", "b", "b"])  # a class with one member
    assert one.predict_proba(X).shape == (60, 2)


@pytest.mark.parametrize(
    ("estimator", "x", "y", "message"),
    [
        (BayesClassifier(), np.where(X > 2, np.nan, X), Y > 1000, "Input X contains NaN"),
        (BayesRegressor(), X, np.where(Y > 1200, np.nan, Y), "Input y contains NaN"),
        (BayesClassifier(), sparse.csr_array(X), Y > 1000, "[Ss]parse data was passed"),
        (BayesClassifier(), X, Y, "Unknown label type: continuous"),
        (BayesClassifier(), X, np.zeros(60), "y has one class, .*at least two"),
        (BayesRegressor(), X[:1], Y[:1], "1 sample.*minimum of 2"),
        (BayesRegressor("mcvi"), X, Y, "method='mcvi' .*mc_vi"),
        (
            BayesRegressor(likelihood="categorical"),
            X,
            Y,
            "likelihood='categorical' is not for numbers: use one of",
        ),
        (BayesClassifier(likelihood="bernoulli"), X, Y > 1000, "is not for one class of each row"),
        (BayesRegressor(likelihood="poisson"), X, Y - 1500, "needs counts"),
        (BayesRegressor(batch_size=0), X, Y, "batch_size=0 must be a positive whole number"),
        (BayesRegressor(num_draws=0), X, Y, "num_draws=0 must be a positive whole number"),
        (BayesRegressor(net=3), X, Y, "net=3 must be a network, its name"),
    ],
)
def test_what_cannot_be_is_named(estimator: Any, x: Any, y: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        estimator.set_params(**QUICK | estimator.get_params(deep=False) | {"epochs": 1}).fit(x, y)


@pytest.mark.parametrize("weight", [-1.0, 0.0])
def test_weights_must_weigh_something(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        BayesRegressor(**QUICK).fit(X, Y, sample_weight=np.full(60, weight))


def test_it_beats_the_mean_by_default() -> None:
    x, y = make_classification(120, 6, n_informative=4, random_state=0)
    found = BayesClassifier(random_state=0).fit(x[:80], y[:80])
    assert found.score(x[80:], y[80:]) > 0.7
    assert bf.sklearn.BayesClassifier is BayesClassifier
