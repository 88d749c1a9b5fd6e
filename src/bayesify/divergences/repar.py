"""`repar`: M draws through the parameterization tuple; the graph has d_P nodes for every M (paper 1, §4)."""

from torch import Tensor

from bayesify.divergences.parameterization import of_family, of_prior
from bayesify.divergences.statistics import Draws, drawn
from bayesify.families.base import Family
from bayesify.priors.base import Prior


def repar(q: Family, p: Prior, draws: Draws) -> Tensor:
    """E log q(w) − 1/M Σ log p(w_i), the sum over draws inside the statistics.

    E log q is exact; with given noise it is the mean over that noise, to compare estimators draw by draw.
    """
    cross = of_prior(q, p)
    if cross is None:
        raise ValueError(
            f"estimator='repar' needs log p(w) to be a finite sum of n(θ) t(ξ), which the {p.name} prior is not for "
            f"the {q.name} family: use estimator='stream'"
        )
    return log_density(q, draws) - cross.combine(q, drawn(q, cross, draws))


def log_density(q: Family, draws: Draws) -> Tensor:
    """E log q; of given noise 1/M Σ log q(w_i), through the tuple: log q(w) = log q₀(ξ) − log |∂W/∂ξ|."""
    if draws.noise is None:
        return q.neg_entropy()
    jacobian = of_family(q)
    return q.noise_log_prob(draws.noise).sum() / draws.num + jacobian.combine(q, drawn(q, jacobian, draws))
