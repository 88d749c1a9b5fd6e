"""Random augmentation of a batch of images on its device, one integer of randomness per image."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.data.normalisation import Normalisation

PADDING = 4  # in training


def num_choices(padding: int = PADDING) -> int:
    """Offsets 0 … 2 · padding along both sides, flipped or not."""
    return 2 * (2 * padding + 1) ** 2


def draw_choices(num_images: int, generator: Generator, padding: int = PADDING) -> Tensor:
    """One integer in 0 … num_choices − 1 per image, on the generator's device: which crop, flipped or not."""
    return torch.randint(num_choices(padding), (num_images,), generator=generator, device=generator.device)


def crop_flip(images: Tensor, choices: Tensor, padding: int = PADDING) -> Tensor:
    """Pad by zeros, crop back to the size at a random offset, flip left-right with probability 1/2.

    Every image has its own offset and flip: out[b, c, i, j] = padded[b, c, oy_b + i, ox_b + j], or
    j ↦ W − 1 − j where flipped, as one gather. `images` (B, C, H, W) of any dtype, `choices` (B,) from
    `draw_choices` with choice = flip + 2 (ox + (2 padding + 1) oy).

    >>> crop_flip(torch.arange(4).view(1, 1, 2, 2), torch.tensor([1 + 2 * (4 + 9 * 4)])).flatten()
    tensor([1, 0, 3, 2])
    """
    _check_images(images)
    batch, channels, height, width = images.shape
    side = 2 * padding + 1
    flip, offset = choices % 2 == 1, choices // 2
    rows = torch.arange(height, device=images.device) + (offset // side)[:, None]  # (B, H)
    cols = torch.arange(width, device=images.device) + (offset % side)[:, None]  # (B, W)
    cols = torch.where(flip[:, None], cols.flip(1), cols)
    flat = rows[:, :, None] * (width + 2 * padding) + cols[:, None, :]  # (B, H, W) into the padded plane
    index = flat.view(batch, 1, -1).expand(batch, channels, -1)
    padded = F.pad(images, (padding,) * 4).flatten(2)  # (B, C, (H + 2 padding)(W + 2 padding))
    return padded.gather(2, index).view(images.shape)


def _check_images(images: Tensor) -> None:
    if images.dim() != 4:
        raise ValueError(
            f"augment='crop_flip' takes images (N, C, H, W), not inputs of shape {tuple(images.shape)}; "
            "use augment='none', in Python augment=None"
        )


@dataclass(frozen=True)
class CropFlip:
    """A function of a batch of images for `model.predict(augment=)`: `crop_flip` with fresh choices.

    padding:  the most that an image moves; in training it is 4
    fill:     what black is in the units of the images, a number or one for each channel. `DataSet.views()` knows it

    >>> CropFlip(1)(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 3, 8, 8])
    """

    padding: int = 3
    fill: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.padding, bool) or not isinstance(self.padding, int) or self.padding < 0:
            raise ValueError(f"padding={self.padding!r} must be a whole number of pixels of at least 0")

    def __call__(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Another view of each image, (N, C, H, W)."""
        _check_images(images)
        if generator is None:
            choices = torch.randint(num_choices(self.padding), images.shape[:1], device=images.device)
        else:
            choices = draw_choices(len(images), generator, self.padding).to(images.device)
        fill = torch.tensor(self.fill, dtype=images.dtype, device=images.device).view(-1, 1, 1)
        return crop_flip(images - fill, choices, self.padding) + fill

    def data(self) -> dict[str, Any]:
        """The fields, as files hold them."""
        return {
            "padding": self.padding,
            "fill": list(self.fill) if isinstance(self.fill, tuple) else self.fill,
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> "CropFlip":
        """What `data` was made from."""
        fill = data["fill"]
        return cls(data["padding"], tuple(fill) if isinstance(fill, list) else fill)


def views(
    augment: str, normalisation: Normalisation, channels: int, strength: float = 2 / 3
) -> CropFlip | None:
    """An augmentation at a share of its strength in training, of inputs as a `Loader` gives them, for
    `model.predict(augment=)`; None for no augmentation.

    strength: of the crops; what was flipped in training is flipped
    """
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength!r} must be a share of the strength in training, from 0 to 1")
    if augment == "none":
        return None
    black = normalisation.inputs(torch.zeros(1, channels, 1, 1, dtype=torch.uint8))
    return CropFlip(round(strength * PADDING), tuple(black.flatten().tolist()))


#: name → function of (images, choices), or None for no augmentation
AUGMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {"none": None, "crop_flip": crop_flip}
