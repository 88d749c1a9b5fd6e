"""Classes of the rows of a table."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from bayesify.likelihoods import Likelihood
from bayesify.methods import Method
from bayesify.predict.predictive import Predictive
from bayesify.sklearn.estimator import BayesEstimator, validate_data
from bayesify.sklearn.rows import distinct


class BayesClassifier(ClassifierMixin, BayesEstimator):
    """A Bayesian network as a classifier of scikit-learn.

    method:       a name ("mc_vi", "laplace", …: `bayesify show methods`) or an object, such as
                  `bf.DeepEnsemble(bf.Laplace())`
    net:          None: a multi-layer perceptron; a name (`bayesify show nets`); a function of num_outputs and
                  input_shape; or a network, which is copied
    likelihood:   "categorical", "ordinal" (classes in sorted order are ranks), or an object
    recipe, epochs, batch_size: how it is trained; left out as `bf.fit` knows for the method, in smaller batches where
                  there are few rows
    num_draws:    networks that a prediction averages over, made once, when `fit` ends: the same row has the same
                  prediction every time
    device:       where it is trained ("cpu", "cuda", "auto"); predictions are made on the CPU
    random_state: of the weights, the order of the rows and the draws
    verbose:      a progress bar

    Columns are standardised inside, by the weighted mean and std of the training rows. A weight of 2 is the row twice.
    Rare classes keep their small probabilities; to weigh all classes alike give `fit` the weights of
    `sklearn.utils.class_weight.compute_sample_weight("balanced", y)`.

    Attributes: `classes_`, `model_` (the bayesified network, of standardised columns), `history_` (of `bf.fit`).

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> BayesClassifier("laplace", random_state=0).fit(X, y).predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        method: str | Method = "mc_vi",
        *,
        net: str | nn.Module | Callable[..., nn.Module] | None = None,
        likelihood: str | Likelihood = "categorical",
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
        """Train on rows X and their labels y: numbers or texts."""
        self._forget()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = self._weights(X, sample_weight)
        self.classes_, codes = np.unique(y[weight > 0], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}: a classifier needs at least two")
        law = self._law("classification")
        X, codes, weight = distinct(X[weight > 0], codes[:, None], weight[weight > 0])
        self._train(X, codes[:, 0].astype(np.int64), weight, law, law.num_outputs(len(self.classes_)))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, classes): probabilities, averaged over draws, in the order of `classes_`."""
        return self.predictive(X).probs.numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(rows,): the most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predictive(self, X: Any, keep_samples: bool = False) -> Predictive:
        """The whole prediction (`bf.Predictive`): `.entropy`, `.aleatoric`, `.epistemic`, `.agreement`, …; classes are
        numbers there, by `classes_`. keep_samples: with the probabilities of every draw."""
        return self._predicted(X, keep_samples)
