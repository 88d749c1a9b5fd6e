"""Corruptions against stored results of imagecorruptions-imaug 1.1.5 (see make_reference.py), pillow and scipy."""

import colorsys
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from make_reference import FIXED, photographs, statistics
from PIL import Image
from scipy import ndimage
from torch import Generator, Tensor

from bayesify.studies.corruptions import CORRUPTIONS, corrupt
from bayesify.studies.corruptions.blur import glass_blur
from bayesify.studies.corruptions.elastic import elastic_transform
from bayesify.studies.corruptions.filters import gaussian, motion
from bayesify.studies.corruptions.pixels import from_hsv, to_hsv
from bayesify.studies.corruptions.spatter import distance_to, edges, equalised

REFERENCE = np.load(Path(__file__).parent / "imagecorruptions_reference.npz")
PHOTOGRAPHS = photographs()
DRAWS = 64
#: largest mean difference of pixels, in grey levels; both sides cut off what is behind the point
TOLERANCE = {"jpeg_compression": 1.1, "saturate": 0.2}


def picture(size: str, copies: int = 1) -> Tensor:
    return torch.from_numpy(PHOTOGRAPHS[size]).permute(2, 0, 1).expand(copies, -1, -1, -1)


def numbers(images: Tensor, size: str) -> np.ndarray:
    """The statistics of uint8 images (N, 3, H, W)."""
    return statistics(images.permute(0, 2, 3, 1).numpy() / 255, PHOTOGRAPHS[size] / 255)


# -- the same pixels ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", FIXED)
def test_pixels_without_randomness(name: str, severity: int) -> None:
    ours = corrupt(picture("small"), name, severity, sizes="large")[0].permute(1, 2, 0).int().numpy()
    difference = np.abs(ours - REFERENCE[f"pixels.{name}.{severity}"])
    assert difference.mean() <= TOLERANCE.get(name, 0.04)
    assert difference.max() <= (10 if name == "jpeg_compression" else 1)


@pytest.mark.parametrize("severity", [1, 3])
def test_pixels_of_a_motion_at_a_known_angle(severity: int) -> None:
    key = f"motion_blur.{severity}"
    constants = CORRUPTIONS["motion_blur"].large[severity - 1]
    angle = torch.tensor([float(REFERENCE[f"angle.{key}"])])
    ours = (motion(picture("small") / 255, *constants, angle) * 255).floor()[0].permute(1, 2, 0).numpy()
    assert np.abs(ours - REFERENCE[f"pixels.{key}"]).max() <= 1


@pytest.mark.parametrize("name", FIXED)
def test_statistics_of_large_images_without_randomness(name: str) -> None:
    ours = numbers(corrupt(picture("large"), name, 3), "large")[0]
    assert ours == pytest.approx(REFERENCE[f"large.{name}.3"][0], abs=1.5e-3)


# -- the same distribution ----------------------------------------------------------------------------------
def close(ours: np.ndarray, reference: np.ndarray, slack: float) -> bool:
    """Are two means over draws equal but for five standard errors of both (1e-6), and `slack`?"""
    error = np.hypot(ours.std(0, ddof=1) / len(ours) ** 0.5, reference[1])
    return bool((np.abs(ours.mean(0) - reference[0]) <= 5 * error + slack).all())


RANDOM = [name for name in CORRUPTIONS if name not in (*FIXED, "elastic_transform", "frost")]


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", RANDOM)
def test_statistics_of_random_ones(name: str, severity: int) -> None:
    generator = Generator().manual_seed(1)
    ours = corrupt(picture("small", DRAWS), name, severity, generator, sizes="large")
    # a motion of 41 pixels leaves an image of 32: the reference then drops light, we keep it
    slack = 0.01 if (name, severity) == ("motion_blur", 5) else 1e-3
    assert close(numbers(ours, "small"), REFERENCE[f"small.{name}.{severity}"], slack)


@pytest.mark.parametrize("name", ["glass_blur", "snow", "fog", "spatter", "shot_noise"])
def test_statistics_of_large_random_ones(name: str) -> None:
    ours = corrupt(picture("large", 6), name, 2, Generator().manual_seed(1))
    assert close(numbers(ours, "large"), REFERENCE[f"large.{name}.2"], 2e-3)


@pytest.mark.parametrize("severity", [1, 5])
def test_elastic_displacement_at_the_constants_of_the_reference(severity: int) -> None:
    """imagecorruptions leaves out the affine map and has constants of its own; ours are ImageNet-C's."""
    amount = 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1] * 32 * 0.005
    x = elastic_transform(picture("small", DRAWS) / 255, (amount, 0.32, 0.0), Generator().manual_seed(1))
    ours = numbers((255 * x).floor().byte(), "small")
    assert close(ours, REFERENCE[f"small.elastic_transform.{severity}"], 1e-3)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_made_up_frost_is_about_as_strong_as_photographed(severity: int) -> None:
    ours = corrupt(picture("small", DRAWS), "frost", severity, Generator().manual_seed(1), sizes="large")
    difference = numbers(ours, "small").mean(0) - REFERENCE[f"small.frost.{severity}"][0]
    assert np.abs(difference).max() < 0.05


# -- parts --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("quality", [7, 25, 50, 80])
@pytest.mark.parametrize("size", [(32, 32), (45, 61)])
def test_jpeg_equals_pillow(quality: int, size: tuple[int, int]) -> None:
    image = PHOTOGRAPHS["large"][: size[0], 40 : 40 + size[1]]
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    theirs = np.asarray(Image.open(file)).astype(int)
    x = torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255
    constants = CORRUPTIONS["jpeg_compression"].function
    ours = (255 * constants(x, quality, Generator())).round()[0].permute(1, 2, 0).int().numpy()
    assert np.abs(ours - theirs).mean() < 1
    assert np.abs(ours - image).mean() == pytest.approx(np.abs(theirs - image).mean(), rel=0.02, abs=0.1)


@pytest.mark.parametrize("mode", ["nearest", "reflect", "mirror"])
@pytest.mark.parametrize("std", [0.0, 0.7, 3.0, 20.0])
def test_gaussian_equals_scipy(mode: str, std: float) -> None:
    x = torch.rand(2, 3, 9, 14)
    expected = ndimage.gaussian_filter(x.double().numpy(), (0, 0, std, std), mode=mode)
    assert np.abs(gaussian(x, std, mode=mode).numpy() - expected).max() < 1e-5


def test_glass_equals_a_walk_pixel_by_pixel() -> None:
    """The sweep over pixels that cannot touch has the result of the walk from the lower right."""
    x = torch.rand(2, 3, 12, 15)
    std, reach, rounds = 0.4, 2, 2
    ours = glass_blur(x, (std, reach, rounds), Generator().manual_seed(5))
    shifts = Generator().manual_seed(5)
    image = (gaussian(x, std) * 255 + 1e-3).floor() / 255
    for _ in range(rounds):
        shift = torch.randint(-reach, reach, (2, 2, 12 * 15), generator=shifts).view(2, 2, 12, 15)
        for n in range(2):
            for row in range(12 - reach, reach, -1):
                for column in range(15 - reach, reach, -1):
                    dy, dx = shift[:, n, row, column].tolist()
                    image[n, :, row, column] = image[n, :, row + dy, column + dx]
    assert torch.allclose(ours, gaussian(image, std).clamp(0, 1), atol=1e-6)


def test_hsv_equals_colorsys() -> None:
    x = torch.rand(1, 3, 6, 7).double()
    x[0, :, 0] = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.3, 0.2, 0.7])  # greys
    hue, saturation, value = to_hsv(x)
    for r in range(6):
        for c in range(7):
            h, s, v = colorsys.rgb_to_hsv(*x[0, :, r, c].tolist())
            assert float(hue[0, r, c]) / 6 == pytest.approx(h, abs=1e-9)
            assert (float(saturation[0, r, c]), float(value[0, r, c])) == pytest.approx((s, v))
    assert torch.allclose(from_hsv(hue, saturation, value), x)


def test_distances_equal_scipy() -> None:
    marked = (torch.rand(3, 1, 40, 50) < 0.002).float()
    marked[2] = 0
    for ours, image in zip(distance_to(marked), marked, strict=True):
        everywhere = np.full((40, 50), 20.0)
        theirs = ndimage.distance_transform_edt(image[0] == 0) if image.any() else everywhere
        assert np.abs(ours[0].numpy() - np.minimum(theirs, 20)).max() < 1e-4


def test_edges_are_thin_lines_around_a_square() -> None:
    image = torch.zeros(1, 1, 20, 20)
    image[..., 6:14, 6:14] = 200
    found = edges(image, 50, 150)[0, 0]
    assert found[10].sum() == 2
    assert found[:, 10].sum() == 2
    assert found[8:12, 8:12].sum() == 0
    assert edges(torch.zeros(2, 1, 8, 8), 50, 150).sum() == 0


def test_equalised_histograms() -> None:
    image = torch.tensor([[[[3.0, 3.0], [7.0, 9.0]]], [[[5.0, 5.0], [5.0, 5.0]]]])
    assert equalised(image)[0].flatten().tolist() == [0, 0, 128, 255]
    assert equalised(image)[1].unique().tolist() == [5]
