"""scikit-learn's own checks of both estimators, and what a table asks for beyond them."""

import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bayesify as bf
from bayesify.methods import METHODS
from bayesify.sklearn import BayesClassifier, BayesRegressor

QUICK: dict[str, Any] = {"epochs": 8, "num_draws": 10, "random_state": 0}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([BayesClassifier(**QUICK), BayesRegressor(**QUICK)])
def test_scikit_learn_finds_nothing(estimator: Any, check: Any) -> None:
    check(estimator)


def table(rows: int = 40, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and a target that hangs on the first two columns."""
    x = np.random.RandomState(seed).randn(rows, columns)
    return x, 300 + 50 * x[:, 0] - 20 * x[:, 1]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:the draws may not be those|ignore::bayesify.SamplingWarning")
def test_a_pickle_predicts_what_the_estimator_did(name: str, tmp_path: Any) -> None:
    """Of every method, bit for bit, and there is no network in it."""
    x, y = table()
    found = BayesRegressor(name, **QUICK | {"epochs": 2}).fit(x, y)
    joblib.dump(found, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert isinstance(found.__getstate__()["model_"], bytes)
    for one, other in zip(found.predict(x, return_std=True), again.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(found.predict_interval(x)).all()


def test_pickles_of_own_networks_and_likelihoods_come_back() -> None:
    x, y = table()
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    before = net[0].weight.detach().clone()
    found = BayesRegressor(net=net, likelihood=bf.likelihood("student_t"), **QUICK).fit(x, y)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(found.predict(x), again.predict(x))
    assert torch.equal(net[0].weight, before)  # it was copied
    assert not hasattr(clone(found), "model_")


@pytest.mark.parametrize("name", ["mc_vi", "laplace", "vdp", "heteroscedastic", "categorical"])
def test_a_weight_is_how_often_a_row_is_there(name: str) -> None:
    """2 is the row twice, 0 the row left out, in any order: bit for bit, by every likelihood and kind of loss."""
    x, y = table(30)
    rng = np.random.RandomState(1)
    weight, order = rng.randint(0, 4, len(x)), rng.permutation(30)
    made: Any = BayesRegressor(name, **QUICK)
    if name == "heteroscedastic":
        made = BayesRegressor(likelihood=name, **QUICK)
    if name == "categorical":
        made, y = (
            BayesClassifier(likelihood=bf.likelihood(name, label_smoothing=0.1), **QUICK),
            (y > 300) * 1.0,
        )
    weighted = clone(made).fit(x[order], y[order], sample_weight=weight[order])
    repeated = clone(made).fit(x.repeat(weight, 0), y.repeat(weight, 0))
    assert weighted.model_.num_data == weight.sum()
    predict = "predict" if name != "categorical" else "predict_proba"
    np.testing.assert_array_equal(getattr(weighted, predict)(x), getattr(repeated, predict)(x))


def test_weights_move_the_prediction() -> None:
    """Two answers at one place: the mean is the weighted one, here (9 · 0 + 1 · 10) / 10."""
    x, y = np.zeros((40, 1)), np.tile([0.0, 10.0], 20)
    found = BayesRegressor("point", epochs=60, random_state=0).fit(
        x, y, sample_weight=np.tile([9.0, 1.0], 20)
    )
    assert found.predict(x[:1]) == pytest.approx(1.0, abs=0.3)


def test_frames_keep_their_names() -> None:
    x, y = table()
    columns = ["a", "b", "c"]
    for package in ("pandas", "polars"):
        frames = pytest.importorskip(package)
        frame = frames.DataFrame({name: x[:, i] for i, name in enumerate(columns)})
        found = BayesRegressor(**QUICK).fit(frame, frames.Series(y))
        assert found.feature_names_in_.tolist() == columns
        np.testing.assert_array_equal(found.predict(frame), BayesRegressor(**QUICK).fit(x, y).predict(x))
        with pytest.raises(ValueError, match="feature names should match"):
            found.predict(frame[["b", "a", "c"]])


def test_categories_by_the_usual_transformers() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.RandomState(0)
    frame = pandas.DataFrame({"colour": rng.choice(["red", "green"], 60), "size": rng.randn(60)})
    y = np.where(frame["colour"] == "red", "warm", "cold")
    columns = ColumnTransformer(
        [("one", OneHotEncoder(sparse_output=False), ["colour"]), ("two", StandardScaler(), ["size"])]
    )
    model = make_pipeline(columns.set_output(transform="pandas"), BayesClassifier(**QUICK | {"epochs": 40}))
    assert model.fit(frame, y).score(frame, y) == 1.0
    assert model.predict(frame[:3]).tolist() == y[:3].tolist()
    assert model[-1].feature_names_in_.tolist() == ["one__colour_green", "one__colour_red", "two__size"]


def test_a_grid_over_methods_in_two_processes() -> None:
    x, y = make_blobs(40, centers=2, n_features=2, cluster_std=2.0, random_state=0)
    grid = {"method": ["point", bf.Laplace()], "epochs": [1, 20]}
    search = GridSearchCV(BayesClassifier(num_draws=5, random_state=0), grid, cv=2, n_jobs=2).fit(x, y)
    assert search.best_params_["epochs"] == 20 and search.best_score_ > 0.7


def test_it_stands_where_others_stand() -> None:
    """In cross-validation, votes, calibration and importances."""
    x, y = make_blobs(60, centers=2, n_features=3, random_state=0)
    quick = BayesClassifier("point", **QUICK)
    assert cross_val_score(quick, x, y, cv=3).min() > 0.8
    votes = VotingClassifier([("a", quick), ("b", clone(quick))], voting="soft").fit(x, y)
    assert votes.score(x, y) > 0.8
    assert CalibratedClassifierCV(quick, cv=2).fit(x, y).predict_proba(x).shape == (60, 2)
    found = permutation_importance(quick.fit(x, y), x, y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (3,)


def test_the_world_outside_stays_as_it_was() -> None:
    """Global generators, and what was given."""
    x, y = table()
    copies = x.copy(), y.copy()
    torch.manual_seed(3), np.random.seed(3)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(3), np.random.seed(3)
    BayesRegressor(**QUICK).fit(x, y)
    assert (torch.rand(1), np.random.rand()) == expected
    np.testing.assert_array_equal(x, copies[0])


def test_an_interrupted_fit_leaves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table()
    found = BayesRegressor(**QUICK).fit(x, y)

    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bayesify.sklearn.estimator.fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        found.fit(x, y)
    with pytest.raises(NotFittedError):
        found.predict(x)
