"""KL(q ‖ p) by several estimators behind one function."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from bayesify.divergences.exact import ALL, EXACT
from bayesify.families import Family, RandomTensor, inside_functorch
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


def kl_all(
    qs: Sequence[Family],
    p: Prior,
    estimator: str = "auto",
    num_draws: int = 1000,
    generator: Generator | None = None,
) -> Tensor:
    """Σ_j KL(q_j ‖ p) over many tensors of one family, in few kernels where the pair has such a form."""
    together = ALL.get((type(qs[0]), type(p)))
    one_by_one = (
        inside_functorch() or torch.compiler.is_compiling()
    )  # the compiler fuses what is written plainly
    if together is not None and estimator in ("auto", "exact") and not one_by_one:
        return together(qs, p)
    return torch.stack([kl(q, p, estimator, num_draws, generator) for q in qs]).sum()


__all__ = ["ESTIMATORS", "EXACT", "kl", "kl_all"]
