"""Estimators for scikit-learn: `BayesClassifier` and `BayesRegressor`."""

from bayesify.sklearn.classifier import BayesClassifier
from bayesify.sklearn.regressor import BayesRegressor

__all__ = ["BayesClassifier", "BayesRegressor"]
