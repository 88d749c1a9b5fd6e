"""Every registered corruption: shapes, types, range, randomness, severity; and the shifts by one number."""

import itertools
import math

import numpy as np
import pytest
import torch
from make_reference import FIXED, photographs
from scipy import ndimage
from torch import Generator, Tensor

from bayesify.studies.corruptions import COMMON, CORRUPTIONS, SEVERITIES, add_noise, corrupt, rotate
from bayesify.studies.corruptions.weather import frost

PICTURE = torch.from_numpy(photographs()["small"]).permute(2, 0, 1)[None]


def test_fifteen_and_four() -> None:
    assert len(COMMON) == 15
    assert sorted(set(CORRUPTIONS) - set(COMMON)) == ["gaussian_blur", "saturate", "spatter", "speckle_noise"]
    for entry in CORRUPTIONS.values():
        assert len(entry.small) == len(entry.large) == len(SEVERITIES)
        assert entry.about
        assert set(entry.options) == {"small", "large"}


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(
    "shape", [(2, 3, 32, 32), (2, 1, 28, 28), (3, 1, 8, 8), (1, 3, 40, 24), (1, 3, 97, 100)]
)
def test_shape_type_and_range(name: str, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    for severity in (1, 5):
        y = corrupt(x, name, severity)
        assert y.shape == x.shape
        assert y.dtype == x.dtype
        assert y.isfinite().all()
        assert y.min() >= 0
        assert y.max() <= 1
    assert corrupt((255 * x).byte(), name, 3).dtype == torch.uint8
    assert corrupt(x.half(), name, 3).dtype == torch.float16


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_draws_come_from_the_generator_and_differ_between_images(name: str) -> None:
    x = PICTURE.expand(2, -1, -1, -1) / 255
    first, again, other = (corrupt(x, name, 3, Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(corrupt(x, name, 3), corrupt(x, name, 3))
    if name in FIXED:
        assert torch.equal(first, other)
    else:
        assert not torch.equal(first, other)
        assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize(
    "name", [n for n in CORRUPTIONS if n not in ("elastic_transform", "saturate", "spatter")]
)
def test_severity_grows(name: str) -> None:
    """Elastic, saturate and spatter change their kind between severities."""
    x = PICTURE.expand(24, -1, -1, -1) / 255
    change = [float((corrupt(x, name, s) - x).abs().mean()) for s in SEVERITIES]
    assert change[0] > 0
    if name in ("glass_blur", "frost", "defocus_blur"):  # 0.4 with one round against 0.25 with two
        assert change[4] > change[0]
    else:
        assert all(b > 0.97 * a for a, b in itertools.pairwise(change)), change


def test_a_grey_image_is_a_colour_image_with_equal_channels() -> None:
    grey = torch.rand(2, 1, 32, 32)
    for name in ("brightness", "contrast", "gaussian_blur", "pixelate"):
        colour = corrupt(grey.expand(-1, 3, -1, -1), name, 2).mean(1, keepdim=True)
        assert torch.allclose(corrupt(grey, name, 2), colour, atol=1e-6)


def test_tiny_images_are_enlarged_and_brought_back() -> None:
    x = torch.rand(2, 1, 8, 8)
    assert torch.allclose(
        corrupt(x, "contrast", 1), 0.75 * (x - x.mean((2, 3), keepdim=True)) + x.mean((2, 3), keepdim=True)
    )


def test_severity_zero_is_clean() -> None:
    assert torch.equal(corrupt(PICTURE, "fog", 0), PICTURE)
    assert len(corrupt(PICTURE[:0], "fog", 3)) == 0


def test_photographs_of_frost() -> None:
    photographs = torch.rand(4, 3, 50, 60)
    x = torch.rand(5, 3, 32, 32)
    y = frost(x, (0.5, 0.5), Generator().manual_seed(0), photographs)
    assert y.shape == x.shape
    assert float((y - 0.5 * x).min()) >= 0
    with pytest.raises(ValueError, match="at least as large as the images 32×32"):
        frost(x, (0.5, 0.5), Generator(), torch.rand(4, 3, 20, 60))


@pytest.mark.parametrize(
    ("images", "name", "severity", "words"),
    [
        (torch.rand(1, 3, 32, 32), "foggy", 1, "Did you mean 'fog'"),
        (torch.rand(1, 3, 32, 32), "fog", 6, "severity=6 must be one of 0, 1, 2, 3, 4, 5"),
        (torch.rand(3, 32, 32), "fog", 1, r"images have shape \(3, 32, 32\)"),
        (torch.rand(1, 2, 32, 32), "fog", 1, r"give \(N, 1, H, W\) or \(N, 3, H, W\)"),
        (torch.randn(1, 3, 32, 32) - 1, "fog", 1, "corruptions come before normalisation"),
        (torch.zeros(1, 3, 32, 32).long(), "fog", 1, "images are torch.int64"),
    ],
)
def test_what_is_refused(images: Tensor, name: str, severity: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        corrupt(images, name, severity)


# -- shifts -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("degrees", [0, 30, 90, -45, 180])
def test_rotation_equals_scipy(degrees: int) -> None:
    x = torch.zeros(2, 1, 15, 15)
    x[:, :, 4:11, 4:11] = torch.rand(2, 1, 7, 7)  # whatever the angle it stays inside
    expected = ndimage.rotate(x.double().numpy(), degrees, axes=(2, 3), reshape=False, order=1)
    assert np.abs(rotate(x, degrees).numpy() - expected).max() < 1e-5


def test_rotation_takes_images() -> None:
    with pytest.raises(ValueError, match=r"rotate takes images \(N, C, H, W\)"):
        rotate(torch.rand(3, 8), 10)


@pytest.mark.parametrize("snr_db", [-6.0, 0.0, 20.0])
@pytest.mark.parametrize("per_image", [True, False])
def test_noise_has_the_ratio_asked_for(snr_db: float, per_image: bool) -> None:
    """65,536 draws an image: a variance estimate is off by √(2/n) · 4.9 = 2.7 %, or 0.12 dB, at 1e-6."""
    x = torch.rand(4, 1, 256, 256) * torch.tensor([0.1, 0.5, 1.0, 2.0]).view(4, 1, 1, 1)
    noise = add_noise(x, snr_db, Generator().manual_seed(0), per_image) - x
    dims = (1, 2, 3) if per_image else (0, 1, 2, 3)
    ratio = 10 * torch.log10(x.square().mean(dims) / noise.square().mean(dims))
    assert float((ratio - snr_db).abs().max()) < 0.12
    assert math.isfinite(float(noise.sum()))
