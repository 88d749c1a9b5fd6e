"""The estimators of bayesify.sklearn as they come, beside those of scikit-learn.

    python benchmarks/sklearn_tables.py --data-root DATA      # half an hour on one core; --splits 1: ten minutes

Regression: UCI sets at their published splits. LL is the mean log density of the test targets, coverage the share of
them in the central 90 % interval. The Gaussian process has an RBF kernel with a length for each column, and noise,
found by the marginal likelihood, on standardised columns and targets.
Classification: sets that ship with scikit-learn, 30 % to test on. Columns of the others are standardised in a
pipeline.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayesify.data import load
from bayesify.sklearn import BayesClassifier, BayesRegressor
from timing import table

METHODS = ("mc_vi", "laplace", "deep_ensemble")  # the first is the default
UCI = ("yacht", "boston", "concrete")
LEVEL = 0.9


class GaussianProcess:
    """scikit-learn's, of standardised columns and targets; the std in the units of y."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> "GaussianProcess":
        kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
        self.columns = StandardScaler().fit(x)
        self.process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=self.seed)
        self.process.fit(self.columns.transform(x), y)
        return self

    def scores(self, x: np.ndarray, y: np.ndarray) -> list[float]:
        mean, std = self.process.predict(self.columns.transform(x), return_std=True)
        law = stats.norm(mean, std)
        low, high = law.interval(LEVEL)
        return scores(law.logpdf(y), mean, low, high, y)


class Network:
    """A `BayesRegressor` with everything left out but the method."""

    def __init__(self, method: str, seed: int) -> None:
        self.model = BayesRegressor(method, random_state=seed)

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Network":
        self.model.fit(x, y)
        return self

    def scores(self, x: np.ndarray, y: np.ndarray) -> list[float]:
        density = self.model.predictive(x, keep_samples=True).log_prob(torch.from_numpy(y)[:, None])
        low, high = self.model.predict_interval(x, LEVEL)
        return scores(density.numpy(), self.model.predict(x), low, high, y)


def scores(density: Any, mean: Any, low: Any, high: Any, y: np.ndarray) -> list[float]:
    inside = ((low <= y) & (y <= high)).mean()
    return [float(density.mean()), float(np.sqrt(np.mean((mean - y) ** 2))), 100 * float(inside)]


def average(rows: list[list[float]]) -> list[str]:
    """mean ± standard error over the splits."""
    values = np.array(rows)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0 * values[0]
    return [f"{m:.3f} ± {e:.3f}" for m, e in zip(values.mean(0), error, strict=True)]


def regression(root: str, splits: int) -> list[list[str]]:
    made: dict[str, Callable[[int], Any]] = {m: (lambda s, m=m: Network(m, s)) for m in METHODS}
    found = []
    for name in UCI:
        for method, make in {**made, "GaussianProcessRegressor": GaussianProcess}.items():
            rows = []
            for split in range(splits):
                ds = load(f"uci_{name}", root, split=split)
                x, y, x_test, y_test = (
                    t.double().numpy() for p in (ds.train, ds.test) for t in (p.inputs, p.targets[:, 0])
                )
                began = time.process_time()
                model = make(split).fit(x, y)
                rows.append([*model.scores(x_test, y_test), time.process_time() - began])
            found.append([name, method, *average(rows)])
            print(*found[-1], flush=True)
    return found


def classification(splits: int) -> list[list[str]]:
    others: dict[str, Callable[[int], Any]] = {
        "LogisticRegression": lambda s: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "RandomForestClassifier": lambda s: RandomForestClassifier(random_state=s),
        "MLPClassifier": lambda s: make_pipeline(StandardScaler(), MLPClassifier(random_state=s)),
    }
    made: dict[str, Callable[[int], Any]] = {
        m: (lambda s, m=m: BayesClassifier(m, random_state=s)) for m in METHODS
    }
    found = []
    for name in ("wine", "breast_cancer", "digits"):
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        for method, make in {**made, **others}.items():
            rows = []
            for split in range(splits):
                a, b, c, d = train_test_split(x, y, test_size=0.3, random_state=split, stratify=y)
                began = time.process_time()
                probs = make(split).fit(a, c).predict_proba(b)
                right = 100 * float((probs.argmax(1) == d).mean())
                rows.append([right, log_loss(d, probs), time.process_time() - began])
            found.append([name, method, *average(rows)])
            print(*found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--splits", type=int, default=3)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")  # scikit-learn's, of optimisers that stop
    numbers = regression(a.data_root, a.splits)
    classes = classification(a.splits)
    table("regression", numbers, ["set", "estimator", "LL", "RMSE", "coverage %", "CPU s"])
    table("classification", classes, ["set", "estimator", "accuracy %", "log loss", "CPU s"])


if __name__ == "__main__":
    main()
