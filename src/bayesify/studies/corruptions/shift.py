"""Shifts with one number: rotation by an angle, noise at a signal-to-noise ratio."""

import torch
from torch import Generator, Tensor

from bayesify.checks import checked
from bayesify.studies.corruptions.filters import positions, sample


@checked
def rotate(x: Tensor, degrees: float) -> Tensor:
    """Images (N, C, H, W) turned counter-clockwise around their middle, bilinear; zeros come in from outside.

    >>> rotate(torch.eye(3)[None, None], 90.0)[0, 0].round().tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if x.dim() != 4:
        raise ValueError(f"x has shape {tuple(x.shape)}: rotate takes images (N, C, H, W)")
    height, width = x.shape[-2:]
    angle = torch.deg2rad(torch.tensor(float(degrees), dtype=torch.float64)).item()
    sine, cosine = torch.tensor(angle).sin().item(), torch.tensor(angle).cos().item()
    whole = x.to(torch.promote_types(x.dtype, torch.float32))
    around = torch.nn.functional.pad(whole, (1, 1, 1, 1))  # a frame of zeros, which sampling repeats
    rows, columns = positions(whole)
    middle = (height - 1) / 2, (width - 1) / 2
    down, right = rows - middle[0], columns - middle[1]
    source_row = cosine * down + sine * right + middle[0] + 1
    source_column = -sine * down + cosine * right + middle[1] + 1
    rows, columns = (place.expand(len(x), -1, -1) for place in (source_row, source_column))
    return sample(around, rows, columns, "nearest").to(x.dtype)


@checked
def add_noise(x: Tensor, snr_db: float, generator: Generator | None = None, per_image: bool = True) -> Tensor:
    """x + ε with Var ε = mean x² / 10^(snr_db / 10), so that SNR_dB = 10 log₁₀(mean x² / Var ε) (paper 3).

    per_image: the power of each image, else that of the whole batch. Nothing is clipped.
    """
    dims = tuple(range(1, x.dim())) if per_image else tuple(range(x.dim()))
    power = x.double().square().mean(dims, keepdim=True)
    std = (power / 10 ** (snr_db / 10)).sqrt().to(x.dtype)
    return x + std * torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
