"""Numbers of the rows of a table."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from torch import Tensor, nn

from bayesify.likelihoods import Likelihood
from bayesify.methods import Method
from bayesify.predict.predictive import Predictive
from bayesify.predict.units import in_units
from bayesify.sklearn.estimator import BayesEstimator, validate_data
from bayesify.sklearn.rows import Scaling, distinct


class BayesRegressor(RegressorMixin, BayesEstimator):
    """A Bayesian network as a regressor of scikit-learn.

    likelihood:   "normal" (one noise level, learned), "heteroscedastic" (predicted for each row), "student_t",
                  "laplace", "poisson", "negative_binomial", "censored_normal" (y has the numbers, then a column of
                  1, seen, or 0, only known to be larger), or an object, whose noise is in units of standardised
                  targets
    method, net, recipe, epochs, batch_size, num_draws, device, random_state, verbose: as of `BayesClassifier`

    Columns and targets are standardised inside, by the weighted mean and std of the training rows (counts are not);
    predictions are in the units of y. y may have several columns. A weight of 2 is the row twice.

    Attributes: `model_` (the bayesified network, of standardised columns and targets), `history_` (of `bf.fit`).

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> low, high = BayesRegressor("laplace", random_state=0).fit(X, y).predict_interval(X[:2], coverage=0.9)
    """

    def __init__(
        self,
        method: str | Method = "mc_vi",
        *,
        net: str | nn.Module | Callable[..., nn.Module] | None = None,
        likelihood: str | Likelihood = "normal",
        recipe: str | None = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        num_draws: int = 100,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.net = net
        self.likelihood = likelihood
        self.recipe = recipe
        self.epochs = epochs
        self.batch_size = batch_size
        self.num_draws = num_draws
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows X and their targets y, (rows,) or (rows, targets)."""
        self._forget()
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        weight = self._weights(X, sample_weight)
        law = self._law("regression")
        self._is_row = y.ndim == 1 or (law.has_flags and y.shape[1] == 2)
        X, y, weight = distinct(X, y.reshape(len(y), -1).astype(np.float64), weight)
        outputs, count = law.num_outputs(y.shape[1]), y.shape[1] // (2 if law.has_flags else 1)
        self._targets = None if law.is_discrete else Scaling.of(y[:, :count], weight)
        z = y if self._targets is None else np.hstack([self._targets(y[:, :count]), y[:, count:]])
        self._train(X, z, weight, law, outputs)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's target; with `return_std` a pair, the std of the target second, noise included."""
        found = self.predictive(X)
        return (self._shaped(found.mean), self._shaped(found.std)) if return_std else self._shaped(found.mean)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """low and high: the central interval that holds a share `coverage` of each row's predictive law."""
        low, high = self.predictive(X, keep_samples=True).interval(coverage)
        return self._shaped(low), self._shaped(high)

    def predictive(self, X: Any, keep_samples: bool = False) -> Predictive:
        """The whole prediction (`bf.Predictive`), (rows, targets) each: `.mean`, `.aleatoric`, `.epistemic`,
        `.log_prob(y)`, … keep_samples: with every draw."""
        found, scaling = self._predicted(X, keep_samples), self._targets
        return found if scaling is None else in_units(found, *map(torch.from_numpy, scaling))

    def _shaped(self, values: Tensor) -> np.ndarray:
        """As y was."""
        return (values[:, 0] if self._is_row else values).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
