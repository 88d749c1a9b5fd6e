"""Likelihoods p(y | output), one per file. Adding one: a file here and a line in LIKELIHOODS."""

from typing import Any

from bayesify.likelihoods.base import TASKS, Likelihood
from bayesify.likelihoods.bernoulli import Bernoulli
from bayesify.likelihoods.categorical import Categorical
from bayesify.likelihoods.heteroscedastic import Heteroscedastic
from bayesify.likelihoods.normal import Normal
from bayesify.likelihoods.poisson import Poisson
from bayesify.likelihoods.student_t import StudentT
from bayesify.names import lookup

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "normal": Normal,
    "heteroscedastic": Heteroscedastic,
    "student_t": StudentT,
    "poisson": Poisson,
}


def likelihood(name: str, **options: Any) -> Likelihood:
    """A likelihood by name: `bf.likelihood("normal", std=0.5, learn_std=True)`."""
    return lookup(LIKELIHOODS, name, "likelihood")(**options)


def check_likelihood(value: Any) -> None:
    """Raise where `value` is no likelihood, or one of a task that does not exist."""
    if not isinstance(value, Likelihood):
        raise TypeError(
            f"likelihood={value!r} must be a name ({', '.join(LIKELIHOODS)}) or an object of a subclass of "
            f"bf.likelihoods.Likelihood"
        )
    lookup(dict.fromkeys(TASKS), value.task, f"likelihood {value.name!r}: task")


__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Heteroscedastic",
    "Likelihood",
    "Normal",
    "Poisson",
    "StudentT",
    "check_likelihood",
    "likelihood",
]
