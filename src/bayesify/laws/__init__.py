"""Laws: the distribution of one number in its standard form, a file each, for families and priors alike.

features.py (what log-densities are sums of), special.py (special functions), noise.py and chi_squared.py (draws) are
what they are made of.
"""

from bayesify.laws.base import Law, PowerOfGamma
from bayesify.laws.error import Error
from bayesify.laws.exponential import Exponential
from bayesify.laws.features import Feature, Terms
from bayesify.laws.gamma import Gamma
from bayesify.laws.horseshoe import Horseshoe
from bayesify.laws.inverse_gamma import InverseGamma
from bayesify.laws.inverse_gaussian import InverseGaussian
from bayesify.laws.laplace import Laplace
from bayesify.laws.log_gamma import LogGamma
from bayesify.laws.logistic import Logistic
from bayesify.laws.normal import Normal
from bayesify.laws.radial import Radial
from bayesify.laws.random_sign import RandomSign
from bayesify.laws.rayleigh import Rayleigh
from bayesify.laws.student_t import StudentT
from bayesify.laws.uniform import Uniform
from bayesify.laws.weibull import Weibull

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
