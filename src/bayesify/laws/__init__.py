"""Laws: the distribution of one number in its standard form, for families and priors alike.

A law stands among its like, in real.py or positive.py, or has a file. features.py (what log-densities are sums of),
special.py (special functions), noise.py and chi_squared.py (draws) are what they are made of.
"""

from bayesify.laws.base import Law, PowerOfGamma
from bayesify.laws.features import Feature, Terms
from bayesify.laws.log_gamma import LogGamma
from bayesify.laws.positive import Exponential, Gamma, InverseGamma, InverseGaussian, Rayleigh, Weibull
from bayesify.laws.radial import Radial
from bayesify.laws.real import Error, Horseshoe, Laplace, Logistic, Normal, RandomSign, StudentT, Uniform

__all__ = [
    "Error",
    "Exponential",
    "Feature",
    "Gamma",
    "Horseshoe",
    "InverseGamma",
    "InverseGaussian",
    "Laplace",
    "Law",
    "LogGamma",
    "Logistic",
    "Normal",
    "PowerOfGamma",
    "Radial",
    "RandomSign",
    "Rayleigh",
    "StudentT",
    "Terms",
    "Uniform",
    "Weibull",
]
