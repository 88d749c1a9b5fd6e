"""One line makes a network Bayesian: `bayesify`, and the module it returns."""

from bayesify.module.bayesian_module import BayesianModule
from bayesify.module.conversion import bayesify

__all__ = ["BayesianModule", "bayesify"]
