"""Likelihoods p(y | output), one per file. Adding one: a file here and a line in LIKELIHOODS."""

from typing import Any

from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.bernoulli import Bernoulli
from bayesify.likelihoods.categorical import Categorical
from bayesify.likelihoods.heteroscedastic import Heteroscedastic
from bayesify.likelihoods.normal import Normal
from bayesify.names import lookup

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "normal": Normal,
    "heteroscedastic": Heteroscedastic,
}


def likelihood(name: str, **options: Any) -> Likelihood:
    """A likelihood by name: `bf.likelihood("normal", std=0.5, learn_std=True)`."""
    return lookup(LIKELIHOODS, name, "likelihood")(**options)


__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Heteroscedastic",
    "Likelihood",
    "Normal",
    "likelihood",
]
