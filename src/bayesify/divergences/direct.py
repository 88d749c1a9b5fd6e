"""`direct`: the plain Monte-Carlo estimator, whose graph grows with M."""

from torch import Tensor

from bayesify.divergences.statistics import Draws
from bayesify.families.base import Family
from bayesify.priors.base import Prior


def direct(q: Family, p: Prior, draws: Draws) -> Tensor:
    """1/M Σ [log q(w_i) − log p(w_i)], every draw a part of the graph (paper 1, eq. 3)."""
    noise = q.noise((draws.num,), draws.generator) if draws.noise is None else draws.noise
    w = q.transform(noise)  # (M, *shape)
    return (q.log_prob(w).sum() - log_prior(q, p, w).sum()) / draws.num


def log_prior(q: Family, p: Prior, w: Tensor) -> Tensor:
    """log p of each draw, (*draws, *shape) → (*draws); priors on the positive half-line are densities of |w|."""
    return p.tensor_log_prob(w.abs() if p.lower >= 0 else w, len(q.shape))
