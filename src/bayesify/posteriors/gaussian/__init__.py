"""Joint normal laws around the network's own weights, found beside or after its training."""

from bayesify.posteriors.gaussian.covariance import Covariance
from bayesify.posteriors.gaussian.gaussian import Gaussian
from bayesify.posteriors.gaussian.weight_average import WeightAverage

__all__ = ["Covariance", "Gaussian", "WeightAverage"]
