"""One line makes a network Bayesian: `bayesify`, and the module it returns."""

from bayesify.model.bayesian_module import BayesianModule
from bayesify.model.conversion import bayesify

__all__ = ["BayesianModule", "bayesify"]
