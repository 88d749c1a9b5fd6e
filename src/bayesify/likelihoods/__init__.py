"""Likelihoods p(y | output), one per file. Adding one: a file here and a line in LIKELIHOODS."""

import json
from typing import Any

from bayesify.likelihoods.base import TASKS, Likelihood
from bayesify.likelihoods.bernoulli import Bernoulli
from bayesify.likelihoods.categorical import Categorical
from bayesify.likelihoods.censored_normal import CensoredNormal
from bayesify.likelihoods.heteroscedastic import Heteroscedastic
from bayesify.likelihoods.laplace import Laplace
from bayesify.likelihoods.negative_binomial import NegativeBinomial
from bayesify.likelihoods.normal import Normal
from bayesify.likelihoods.ordinal import Ordinal
from bayesify.likelihoods.poisson import Poisson
from bayesify.likelihoods.student_t import StudentT
from bayesify.names import Registry, lookup

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "normal": Normal,
    "heteroscedastic": Heteroscedastic,
    "student_t": StudentT,
    "laplace": Laplace,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "ordinal": Ordinal,
    "censored_normal": CensoredNormal,
}
LIKELIHOODS = Registry(Likelihood, LIKELIHOODS)


def likelihood(name: str, **options: Any) -> Likelihood:
    """A likelihood by name: `bf.likelihood("normal", std=0.5, learn_std=True)`."""
    return lookup(LIKELIHOODS, name, "likelihood")(**options)


def check_likelihood(value: Any) -> None:
    """Raise where `value` is no likelihood, or one of your own whose class lacks something or cannot be stored."""
    if not isinstance(value, Likelihood):
        raise TypeError(
            f"likelihood={value!r} must be a name ({', '.join(LIKELIHOODS)}) or an object of a subclass of "
            f"bf.likelihoods.Likelihood"
        )
    own = type(value).__name__
    for member in ("name", "task"):
        if not isinstance(getattr(value, member, None), str):
            raise TypeError(f"likelihood {own} has no {member}: write {member} = '…' into the class")
    lookup(dict.fromkeys(TASKS), value.task, f"likelihood {value.name!r}: task")
    if LIKELIHOODS.get(value.name, type(value)) is not type(value):
        raise ValueError(f"likelihood {own} has the name of another, {value.name!r}: give it one of its own")
    try:
        json.dumps({**value.options}, allow_nan=False)
    except (TypeError, ValueError) as error:
        message = "must be a dict of finite numbers, texts and lists, e.g. float(self.scale.detach())"
        raise TypeError(f"likelihood {own}: options={value.options!r} {message}") from error


__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "CensoredNormal",
    "Heteroscedastic",
    "Laplace",
    "Likelihood",
    "NegativeBinomial",
    "Normal",
    "Ordinal",
    "Poisson",
    "StudentT",
    "check_likelihood",
    "likelihood",
]
