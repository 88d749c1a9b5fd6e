"""Random augmentation of a batch of images on its device, one integer of randomness per image."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

PADDING = 4
_SIDE = 2 * PADDING + 1  # offsets 0 … 2 · PADDING
NUM_CHOICES = 2 * _SIDE * _SIDE


def draw_choices(num_images: int, generator: Generator) -> Tensor:
    """One integer in 0 … NUM_CHOICES − 1 per image, on the generator's device: which crop, flipped or not."""
    return torch.randint(NUM_CHOICES, (num_images,), generator=generator, device=generator.device)


def crop_flip(images: Tensor, choices: Tensor) -> Tensor:
    """Pad by 4 zeros, crop back to the size at a random offset, flip left-right with probability 1/2.

    Every image has its own offset and flip: out[b, c, i, j] = padded[b, c, oy_b + i, ox_b + j], or
    j ↦ W − 1 − j where flipped, as one gather. `images` (B, C, H, W) of any dtype, `choices` (B,) from
    `draw_choices` with choice = flip + 2 (ox + 9 oy).

    >>> crop_flip(torch.arange(4).view(1, 1, 2, 2), torch.tensor([1 + 2 * (4 + 9 * 4)])).flatten()
    tensor([1, 0, 3, 2])
    """
    if images.dim() != 4:
        raise ValueError(
            f"augment='crop_flip' takes images (N, C, H, W), not inputs of shape {tuple(images.shape)}; "
            "use augment='none'"
        )
    batch, channels, height, width = images.shape
    flip, offset = choices % 2 == 1, choices // 2
    rows = torch.arange(height, device=images.device) + (offset // _SIDE)[:, None]  # (B, H)
    cols = torch.arange(width, device=images.device) + (offset % _SIDE)[:, None]  # (B, W)
    cols = torch.where(flip[:, None], cols.flip(1), cols)
    flat = rows[:, :, None] * (width + 2 * PADDING) + cols[:, None, :]  # (B, H, W) into the padded plane
    index = flat.view(batch, 1, -1).expand(batch, channels, -1)
    padded = F.pad(images, (PADDING,) * 4).flatten(2)  # (B, C, (H + 8)(W + 8))
    return padded.gather(2, index).view(images.shape)


#: name → function of (images, choices), or None for no augmentation
AUGMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {"none": None, "crop_flip": crop_flip}
