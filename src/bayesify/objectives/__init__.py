"""What is minimised, and nothing about how the network was evaluated."""

from bayesify.objectives.elbo import DataTerm, Loss, elbo, negative_elbo, nll_of
from bayesify.objectives.warmup import KLWarmup

__all__ = ["DataTerm", "KLWarmup", "Loss", "elbo", "negative_elbo", "nll_of"]
