"""crop_flip against a loop over images, and its randomness."""

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.data import DataSet, Split
from bayesify.data.augment import PADDING, CropFlip, crop_flip, draw_choices, num_choices


def one_by_one(images: Tensor, choices: Tensor) -> Tensor:
    out = []
    for image, choice in zip(images, choices.tolist(), strict=True):
        oy, ox = divmod(choice // 2, 9)
        crop = F.pad(image, (4, 4, 4, 4))[:, oy : oy + image.shape[1], ox : ox + image.shape[2]]
        out.append(crop.flip(-1) if choice % 2 else crop)
    return torch.stack(out)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_agrees_with_a_loop_over_images_for_every_choice(dtype: torch.dtype) -> None:
    choices = torch.arange(num_choices())
    images = torch.randint(1, 256, (num_choices(), 3, 6, 10)).to(dtype)
    result = crop_flip(images, choices)
    assert result.dtype == dtype
    assert torch.equal(result, one_by_one(images, choices))


def test_choices_are_uniform() -> None:
    """162 choices, 100,000 draws: a count strays 5.7 standard deviations with probability < 1e-6 in all."""
    counts = torch.bincount(draw_choices(100_000, Generator().manual_seed(0)), minlength=num_choices())
    expected = 100_000 / num_choices()
    assert len(counts) == num_choices()
    assert (counts - expected).abs().max() < 5.7 * expected**0.5


def test_refuses_what_is_not_an_image() -> None:
    with pytest.raises(ValueError, match=r"augment='crop_flip' takes images \(N, C, H, W\).*\(2, 3\)"):
        crop_flip(torch.zeros(2, 3), torch.zeros(2).long())


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_views_of_a_batch_are_crops_and_flips_with_black_around_them(padding: int) -> None:
    """Each view is one of all 2 (2 padding + 1)² that a loop makes, and examples get theirs independently."""
    images = torch.rand(3, 6, 5).expand(400, -1, -1, -1)
    black = torch.tensor([0.5, -1.0, 2.0])
    views = CropFlip(padding, (0.5, -1.0, 2.0))(images, generator=Generator().manual_seed(0))
    shifted = F.pad(images[0] - black[:, None, None], (padding,) * 4) + black[:, None, None]
    every = [
        shifted[:, oy : oy + 6, ox : ox + 5] for oy in range(2 * padding + 1) for ox in range(2 * padding + 1)
    ]
    every = torch.stack([*every, *(crop.flip(-1) for crop in every)])
    assert len(every) == num_choices(padding)
    distance = (views[:, None] - every[None]).abs().flatten(2).amax(2)  # (views, choices)
    assert distance.min(1).values.max() < 1e-6
    assert len(distance.argmin(1).unique()) > 0.6 * len(every)
    assert torch.equal(views, CropFlip(padding, (0.5, -1.0, 2.0))(images, Generator().manual_seed(0)))
    assert CropFlip(padding)(images).shape == images.shape


def test_a_data_set_knows_its_views() -> None:
    images = torch.randint(0, 256, (20, 3, 6, 6)).byte()
    split = Split(images, torch.arange(20) % 2)
    ds = DataSet.classification("made up", split, split, ("a", "b"), augment="crop_flip")
    views = ds.views()
    assert views is not None and views.padding == 3 and ds.views(1.0) == CropFlip(PADDING, views.fill)
    x = ds.normalisation.inputs(torch.zeros_like(images))  # black stays black wherever it is moved
    torch.testing.assert_close(views(x), x)
    assert DataSet.classification("made up", split, split, ("a", "b")).views() is None
    with pytest.raises(
        ValueError, match="strength=2 must be a share of the strength in training, from 0 to 1"
    ):
        ds.views(2)
    with pytest.raises(ValueError, match="padding=1.5 must be a whole number of pixels of at least 0"):
        CropFlip(1.5)  # type: ignore[arg-type]
