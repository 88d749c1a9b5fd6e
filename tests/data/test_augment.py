"""crop_flip against a loop over images, and its randomness."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.data.augment import NUM_CHOICES, crop_flip, draw_choices


def one_by_one(images: Tensor, choices: Tensor) -> Tensor:
    out = []
    for image, choice in zip(images, choices.tolist(), strict=True):
        oy, ox = divmod(choice // 2, 9)
        crop = F.pad(image, (4, 4, 4, 4))[:, oy : oy + image.shape[1], ox : ox + image.shape[2]]
        out.append(crop.flip(-1) if choice % 2 else crop)
    return torch.stack(out)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_agrees_with_a_loop_over_images_for_every_choice(dtype: torch.dtype) -> None:
    choices = torch.arange(NUM_CHOICES)
    images = torch.randint(1, 256, (NUM_CHOICES, 3, 6, 10)).to(dtype)
    result = crop_flip(images, choices)
    assert result.dtype == dtype
    assert torch.equal(result, one_by_one(images, choices))


def test_choices_are_uniform() -> None:
    """162 choices, 100,000 draws: a count strays 5.7 standard deviations with probability < 1e-6 in all."""
    counts = torch.bincount(draw_choices(100_000, Generator().manual_seed(0)), minlength=NUM_CHOICES)
    expected = 100_000 / NUM_CHOICES
    assert len(counts) == NUM_CHOICES
    assert (counts - expected).abs().max() < 5.7 * expected**0.5


def test_refuses_what_is_not_an_image() -> None:
    with pytest.raises(ValueError, match=r"augment='crop_flip' takes images \(N, C, H, W\).*\(2, 3\)"):
        crop_flip(torch.zeros(2, 3), torch.zeros(2).long())
