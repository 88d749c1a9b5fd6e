"""How good predicted means are."""

from torch import Tensor


def rmse(mean: Tensor, target: Tensor) -> Tensor:
    """Root mean squared error."""
    return (mean.double() - target.double().reshape(mean.shape)).square().mean().sqrt()
