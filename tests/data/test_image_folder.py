"""Folders of images: layout, decoding in workers, and damaged files named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import write_image, write_image_folder
from PIL import Image, ImageChops, ImageOps

from bayesify.data import ImageFiles, Loader, load
from bayesify.data.image_files import decode, read_image

SMALL = {"size": 16, "num_workers": 0}


def test_layout_with_val_only(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    ds = load("image_folder", tmp_path, **SMALL)
    assert (ds.class_names, ds.input_shape, ds.augment) == (("blue", "red"), (3, 16, 16), "crop_flip")
    assert (len(ds.train), ds.val, len(ds.test)) == (6, None, 6)
    assert ds.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert isinstance(ds.train.inputs, ImageFiles)
    assert ds.train.inputs[:2].shape == (2, 3, 16, 16)
    assert ds.train.inputs[torch.tensor([2, 0])][:, 2, 0, 0].tolist() == [202, 200]
    assert ds.normalisation.mean.tolist() == pytest.approx([0.485, 0.456, 0.406])


def test_layout_with_val_and_test_and_with_flat_test(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "both", ("train", "val", "test"))
    ds = load("image_folder", tmp_path / "both", **SMALL)
    assert (len(ds.val), len(ds.test)) == (6, 6)
    write_image_folder(tmp_path / "flat")
    write_image(tmp_path / "flat/test/unlabelled.png", 20, 20, (0, 0, 0))
    assert load("image_folder", tmp_path / "flat", **SMALL).val is None


def test_validation_split_takes_files(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    ds = load("image_folder", tmp_path, **SMALL).with_validation(0.5, seed=0)
    paths = {*ds.train.inputs.paths, *ds.val.inputs.paths}
    assert (len(ds.train), len(ds.val), len(paths)) == (3, 3, 6)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_and_memory_give_the_same_batches(num_workers: int, tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    lazy = load("image_folder", tmp_path, size=16, num_workers=num_workers)
    held = load("image_folder", tmp_path, **SMALL, in_memory=True)
    assert isinstance(held.train.inputs, torch.Tensor)
    options = {"shuffle": True, "normalise": lazy.normalisation, "augment": "crop_flip"}
    loaders = [Loader(ds.train, 4, **options) for ds in (lazy, held)]
    before = torch.get_rng_state()
    for loader in loaders:
        loader.set_epoch(3)
        loader.start_at(1)
    for (x, y), (expected_x, expected_y) in zip(*loaders, strict=True):
        assert torch.equal(x, expected_x)
        assert torch.equal(y, expected_y)
    assert torch.equal(before, torch.get_rng_state())


def test_decoding_keeps_the_centre(tmp_path: Path) -> None:
    wide = Image.new("RGB", (60, 20), (255, 0, 0))
    wide.paste((0, 255, 0), (20, 0, 40, 20))  # the middle third
    wide.save(tmp_path / "wide.png")
    pixels = decode(tmp_path / "wide.png", 20, 20)
    assert pixels.shape == (3, 20, 20)
    assert (pixels[1] == 255).all()
    halved = decode(tmp_path / "wide.png", 8, 10)
    assert (halved[1] == 255).all()


@pytest.mark.parametrize("name", ["L.png", "LA.png", "RGBA.png", "P.png", "1.png", "L.jpg", "CMYK.jpg"])
def test_other_colour_modes_become_rgb(name: str, tmp_path: Path) -> None:
    white = {"L": 255, "LA": (255, 0), "P": 0, "1": 1, "CMYK": (0, 0, 0, 0)}
    mode = name.partition(".")[0]
    image = Image.new(mode, (20, 20), white.get(mode, (255, 255, 255, 0)))
    if mode == "P":
        image.putpalette([255] * 768)
    image.save(tmp_path / name)
    pixels = decode(tmp_path / name, 16, 18)
    assert pixels.shape == (3, 16, 16)
    assert (pixels == 255).all()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("damaged", ["cut", "text", "empty", "gif"])
def test_a_damaged_image_is_named(damaged: str, num_workers: int, tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    path = tmp_path / "train/red/1.JPEG"
    sound = path.read_bytes()
    gif = write_image(tmp_path / "other.gif", 20, 20, (0, 0, 0)).read_bytes()
    path.write_bytes({"cut": sound[: len(sound) // 2], "text": b"hello", "empty": b"", "gif": gif}[damaged])
    ds = load("image_folder", tmp_path, size=16, num_workers=num_workers)
    with pytest.raises(ValueError, match="not a readable JPEG or PNG image") as caught:
        list(Loader(ds.train, 2))
    assert str(caught.value).startswith(str(path))


ORANGE = (240, 140, 20)


def imagenet(root: Path) -> dict[str, Path]:
    """Every kind of file that ImageNet has, under its names; all of them show the same orange."""
    train, val = root / "train/n02123045", root / "val/n02123045"
    for k in range(2):
        write_image(root / f"train/n01440764/n01440764_{k}.JPEG", 50, 40, (0, 120, 0))
        write_image(root / f"val/n01440764/ILSVRC2012_val_0000029{k}.JPEG", 40, 50, (0, 120, 0))
    kinds = {kind: train / f"n02123045_{k}.JPEG" for k, kind in enumerate(KINDS)}
    for kind, path in kinds.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](path)
    write_image(val / "ILSVRC2012_val_00000001.JPEG", 64, 48, ORANGE)
    (root / "train/.DS_Store").write_text("")
    (train / "notes.txt").write_text("")
    return kinds


def _rgb(**options: Any) -> Callable[[Path], None]:
    return lambda path: Image.new("RGB", (60, 48), ORANGE).save(path, **options)


def _cmyk(path: Path) -> None:
    Image.new("RGB", (60, 48), ORANGE).convert("CMYK").save(path, "JPEG", quality=95)


def _palette(path: Path) -> None:
    """One colour of it is partly transparent, about which Pillow warns."""
    image = Image.new("RGB", (60, 48), ORANGE).quantize(4)
    image.save(path, "PNG", transparency=bytes([128, 255, 255, 255]))


def _camera(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    _rgb(exif=exif)(path)


KINDS: dict[str, Callable[[Path], None]] = {
    "colour": _rgb(format="JPEG", quality=95),
    "cmyk": _cmyk,
    "png under another name": _rgb(format="PNG"),
    "palette": _palette,
    "turned camera": _camera,
    "damaged exif": _rgb(exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01"),
}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_imagenet_with_all_its_kinds_of_files(num_workers: int, tmp_path: Path) -> None:
    kinds = imagenet(tmp_path)
    ds = load("image_folder", tmp_path, size=16, num_workers=num_workers)
    assert ds.class_names == ("n01440764", "n02123045")
    assert ds.train.targets.tolist() == [0, 0] + [1] * len(kinds)
    assert ds.test.targets.tolist() == [0, 0, 1]
    loader = Loader(ds.train, 3)
    pictures = torch.cat([x for x, _ in loader])[2:]
    for kind, picture in zip(kinds, pictures, strict=True):
        assert (255 * picture - torch.tensor(ORANGE).view(3, 1, 1)).abs().max() <= 5, kind


def test_imagenet_names_the_corrupt_file(tmp_path: Path) -> None:
    path = imagenet(tmp_path)["colour"]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=f"{path}: not a readable JPEG or PNG image"):
        list(Loader(load("image_folder", tmp_path, **SMALL).train, 3))


def test_imagenet_val_as_it_is_distributed_has_no_labels(tmp_path: Path) -> None:
    imagenet(tmp_path)
    (tmp_path / "val").rename(tmp_path / "sorted")
    write_image(tmp_path / "val/ILSVRC2012_val_00000001.JPEG", 40, 40, ORANGE)
    with pytest.raises(FileNotFoundError, match="sort their images into folders named like those of train"):
        load("image_folder", tmp_path)


@pytest.mark.parametrize("number", range(1, 9))
def test_exif_orientation(number: int, tmp_path: Path) -> None:
    """Pillow's own correction is the reference; red, green and blue corners tell the eight apart."""
    stored = Image.new("RGB", (32, 16))
    for colour, corner in (((255, 0, 0), (0, 0)), ((0, 255, 0), (16, 0)), ((0, 0, 255), (0, 8))):
        stored.paste(colour, (*corner, corner[0] + 16, corner[1] + 8))
    exif = Image.Exif()
    exif[0x0112] = number
    stored.save(tmp_path / "x.png", exif=exif)
    with Image.open(tmp_path / "x.png") as file:
        upright = ImageOps.exif_transpose(file)
        assert ImageChops.difference(read_image(tmp_path / "x.png", "RGB"), upright).getbbox() is None
    assert upright.size == ((32, 16) if number < 5 else (16, 32))


def test_sixteen_bits_of_grey_keep_their_contrast(tmp_path: Path) -> None:
    levels = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    Image.fromarray(levels).save(tmp_path / "x.png")
    pixels = decode(tmp_path / "x.png", 16, 16)
    assert torch.equal(pixels[0].flatten(), torch.arange(256, dtype=torch.uint8))
    assert torch.equal(pixels[0], pixels[2])


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'image_folder': no folders .*train/<class>.*--data-root"):
        load("image_folder", tmp_path)
    write_image_folder(tmp_path, ("train",))
    assert len(load("image_folder", tmp_path, **SMALL).test) == 1  # a fifth of six images
    write_image(tmp_path / "test/unlabelled.png", 20, 20, (0, 0, 0))
    with pytest.raises(FileNotFoundError, match=r"neither .*val nor .*test has class folders"):
        load("image_folder", tmp_path)


def test_wrong_classes(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "new")
    write_image(tmp_path / "new/val/green/1.png", 20, 20, (0, 0, 0))
    with pytest.raises(ValueError, match="val: class green does not occur in the train folder"):
        load("image_folder", tmp_path / "new", **SMALL)
    write_image_folder(tmp_path / "empty")
    (tmp_path / "empty/train/green").mkdir()
    with pytest.raises(ValueError, match=r"green: holds no image \(\.jpg, \.jpeg, \.png\)"):
        load("image_folder", tmp_path / "empty", **SMALL)
    for part in ("train", "val"):
        write_image(tmp_path / "one" / part / "red" / "1.png", 20, 20, (0, 0, 0))
    with pytest.raises(ValueError, match="every label is 0"):
        load("image_folder", tmp_path / "one", **SMALL)


@pytest.mark.parametrize(("size", "resize"), [(0, 10), (20, 10), (-3, None)])
def test_sizes(size: int, resize: int | None, tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    with pytest.raises(ValueError, match=rf"size={size}, .*need 0 < size <= resize"):
        load("image_folder", tmp_path, size=size, resize=resize)
