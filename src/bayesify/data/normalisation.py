"""Standardising inputs and targets, and the way back to original units."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Normalisation:
    """z = (x − mean) / std per channel or feature, and t = (y − target_mean) / target_std for regression.

    `mean` and `std` (C,) of uint8 images refer to x / 255, as such numbers are usually printed.
    A prediction t of the standardised target is y = target_mean + target_std · t in original units.
    Statistics come from the training part; a constant channel gets std 1.

    >>> n = Normalisation.of(torch.tensor([[0.0], [2.0]]))
    >>> n.inputs(torch.tensor([[4.0]]))
    tensor([[3.]])
    """

    mean: Tensor
    std: Tensor
    target_mean: Tensor | None = None
    target_std: Tensor | None = None

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor | None = None) -> "Normalisation":
        """Statistics of `inputs` (N, C, …) and, for regression, of `targets` (N, T); std with divisor N."""
        mean, std = _byte_moments(inputs) if inputs.dtype == torch.uint8 else _moments(inputs)
        target_mean, target_std = (None, None) if targets is None else _moments(targets)
        return cls(mean, std, target_mean, target_std)

    @classmethod
    def identity(cls) -> "Normalisation":
        """mean 0, std 1 for any number of channels: uint8 still becomes x / 255."""
        return cls(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))

    def numbers(self) -> dict[str, list[float] | None]:
        """As plain data."""
        return {name: None if value is None else value.tolist() for name, value in vars(self).items()}

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float64) -> "Normalisation":
        """The same numbers on `device`, in `dtype`."""
        return replace(self, **{k: v.to(device, dtype) for k, v in vars(self).items() if v is not None})

    def inputs(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(x − mean) / std for x (B, C, …), uint8 or floating, computed in at least float32, as `dtype`."""
        image = x.dtype == torch.uint8
        unit = 255.0 if image else 1.0
        compute = torch.promote_types(dtype if image else x.dtype, torch.float32)
        shape = (-1, *[1] * (x.dim() - 2))  # (C, 1, …)
        mean, std = (v.to(x.device, compute).view(shape) for v in (self.mean, self.std))
        return ((x.to(compute) - unit * mean) / (unit * std)).to(dtype)

    def targets(self, y: Tensor) -> Tensor:
        """(y − target_mean) / target_std; unchanged for classification."""
        if self.target_mean is None or self.target_std is None:
            return y
        return (y - self.target_mean.to(y)) / self.target_std.to(y)

    def original_mean(self, t: Tensor) -> Tensor:
        """Standardised predictions back in the target's units: target_mean + target_std · t."""
        if self.target_mean is None or self.target_std is None:
            return t
        return self.target_mean.to(t) + self.target_std.to(t) * t

    def original_std(self, std: Tensor) -> Tensor:
        """A standard deviation of standardised predictions in the target's units: target_std · std."""
        return std if self.target_std is None else self.target_std.to(std) * std


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std over all dimensions but the second, float64; std 1 where a column is constant."""
    columns = values.double().transpose(0, 1).flatten(1)  # (C, N · …)
    constant = columns.amax(1) == columns.amin(1)  # exact: rounding makes std of a constant 1e-14, not 0
    std = columns.std(1, correction=0)
    return columns.mean(1), torch.where(constant, torch.ones_like(std), std)


def _byte_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """`_moments` of images / 255 for uint8 (N, C, …), from the histogram of each channel."""
    values = torch.arange(256, dtype=torch.float64, device=images.device) / 255
    counts = torch.stack([torch.bincount(c.flatten(), minlength=256) for c in images.unbind(1)])  # (C, 256)
    weights = counts.double() / counts.sum(1, keepdim=True)
    mean = weights @ values
    std = (weights * (values - mean[:, None]).square()).sum(1).sqrt()
    constant = (counts > 0).sum(1) == 1
    return mean, torch.where(constant, torch.ones_like(std), std)
