"""What is minimised, and nothing about how the network was evaluated."""

from bayesify.objectives.elbo import Loss, elbo
from bayesify.objectives.warmup import KLWarmup

__all__ = ["KLWarmup", "Loss", "elbo"]
