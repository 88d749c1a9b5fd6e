"""What the weights of a variance network look like: log α, and the swap to zero mean (paper 5)."""

import torch
from torch import Tensor

from bayesify.model import BayesianModule
from bayesify.posteriors import Posterior
from bayesify.posteriors.variance import VarianceFactorized
from bayesify.weights.where import Candidate, Where

BOUND = 20.0  # |log α| beyond it is shown as it


def log_alpha(model: BayesianModule) -> dict[str, Tensor]:
    """log α = log(variance/mean²) of every random weight, by name, between −20 and 20 (20 for a mean of zero)."""
    posterior = variance_posterior(model)
    result = {}
    with torch.no_grad():
        for name, q in posterior.distributions(list(posterior.slots)).items():
            ratio = (q.variance.double() / q.mean.double().square()).nan_to_num(nan=0.0)
            result[name] = ratio.log().clamp(-BOUND, BOUND).to(q.mean.dtype)
    return result


def zero_mean(model: BayesianModule, where: Where | None = None) -> list[str]:
    """Swap trained layers to zero mean: N(μ, α μ²) becomes N(0, α μ²) (eq. 11). Returns the names of the weights.

    where: which of the random weights, all without it. After the phase transition of a layer its ensemble predicts as
    before; `bf.save` keeps the swap, and training may go on.

    >>> bf.zero_mean(model, bf.where.matching("head.1"))
    """
    posterior = variance_posterior(model)
    weights = [w for w in model.selection.random if where is None or where(Candidate(w.name, w.kind))]
    if not weights:
        raise ValueError(f"where={where} selects none of the random weights {', '.join(posterior.slots)}")
    for weight in weights:
        leaf = posterior.random_tensor(weight.name)
        if "mean_gate" not in leaf._buffers:
            raise ValueError(f"{weight.name!r} has the {leaf.family.name} family, whose mean is zero already")
        leaf.mean_gate.zero_()
    return [weight.name for weight in weights]


def variance_posterior(model: BayesianModule) -> VarianceFactorized:
    """The posterior of a variance network, or an error that says what else the model is."""
    posterior: Posterior = model.posterior
    if not isinstance(posterior, VarianceFactorized):
        raise TypeError(
            f"this needs a model by bf.VarianceNetwork, not by method {model.method.name!r}; of an ensemble take a "
            f"member's own model"
        )
    return posterior
