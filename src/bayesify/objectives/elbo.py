"""The negative ELBO per example. All scaling by the size of the data set lives here."""

from typing import Any, NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """The named parts of a loss.

    nll: mean per example.  kl: of the whole posterior.  total = nll + kl_weight · kl / num_data.
    """

    nll: Tensor
    kl: Tensor
    total: Tensor


def elbo(nll: Tensor, kl: Tensor, num_data: int, kl_weight: Any = 1.0) -> Loss:
    """−ELBO / N = mean_i −log p(y_i | x_i, w) + kl_weight · KL(q ‖ p) / N, with N = num_data."""
    return Loss(nll, kl, nll + kl_weight * kl / num_data)
