"""KL(q ‖ p) by several estimators behind one function."""

from torch import Generator, Tensor

from bayesify.divergences.exact import EXACT
from bayesify.families import Family, RandomTensor
from bayesify.names import lookup
from bayesify.priors import Prior


def _exact(q: Family, p: Prior, num_draws: int, generator: Generator | None) -> Tensor:
    pair = (type(q), type(p))
    if pair not in EXACT:
        raise ValueError(f"no exact KL between the {q.name} family and the {p.name} prior")
    return EXACT[pair](q, p)


ESTIMATORS = {"auto": _exact, "exact": _exact}


def kl(
    q: Family | RandomTensor,
    p: Prior,
    estimator: str = "auto",
    num_draws: int = 1000,
    generator: Generator | None = None,
) -> Tensor:
    """KL(q ‖ p) summed over all entries of the tensor: a scalar with gradients.

    `exact`: the closed form. `auto`: the best available.
    """
    distribution = q.distribution() if isinstance(q, RandomTensor) else q
    return lookup(ESTIMATORS, estimator, "estimator")(distribution, p, num_draws, generator)


__all__ = ["ESTIMATORS", "EXACT", "kl"]
