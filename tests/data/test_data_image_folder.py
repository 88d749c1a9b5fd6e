"""Folders of images: layout, decoding in workers, and damaged files named."""

from pathlib import Path

import pytest
import torch
from data_files import write_image, write_image_folder

from bayesify.data import ImageFiles, Loader, load
from bayesify.data.image_files import decode

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
    from PIL import Image

    wide = Image.new("RGB", (60, 20), (255, 0, 0))
    wide.paste((0, 255, 0), (20, 0, 40, 20))  # the middle third
    wide.save(tmp_path / "wide.png")
    pixels = decode(tmp_path / "wide.png", 20, 20)
    assert pixels.shape == (3, 20, 20)
    assert (pixels[1] == 255).all()
    halved = decode(tmp_path / "wide.png", 8, 10)
    assert (halved[1] == 255).all()


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_other_colour_modes_become_rgb(mode: str, tmp_path: Path) -> None:
    from PIL import Image

    Image.new(mode, (20, 20)).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png", 16, 18).shape == (3, 16, 16)


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


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'image_folder': no folders .*train/<class>.*--data-root"):
        load("image_folder", tmp_path)
    write_image_folder(tmp_path, ("train",))
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
