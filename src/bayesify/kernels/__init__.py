"""Fused random kernels: Triton on a GPU, plain torch with the same law elsewhere. Imported where they are used."""

from bayesify.kernels.draws import normal_draws
from bayesify.kernels.sums import LAWS, noise_sums

__all__ = ["LAWS", "noise_sums", "normal_draws"]
