"""How good predicted means are."""

from torch import Tensor


def rmse(mean: Tensor, target: Tensor) -> Tensor:
    """Root mean squared error; both of one shape but for sizes of 1."""
    if [s for s in mean.shape if s != 1] != [s for s in target.shape if s != 1]:
        raise ValueError(f"mean {tuple(mean.shape)} and target {tuple(target.shape)} must have one shape")
    return (mean.double() - target.double().reshape(mean.shape)).square().mean().sqrt()
