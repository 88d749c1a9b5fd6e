"""Data of one's own by their path: which kind reads them, arrays, image folders, saved data sets, factories."""

from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import write_image

from bayesify.data import DataSet, Split, load, resolve
from bayesify.data.image_folder import LARGE


def test_arrays_with_parts(tmp_path: Path) -> None:
    r = np.random.RandomState(0)
    images = r.randint(0, 255, (12, 9, 9, 3)).astype(np.uint8)
    path = tmp_path / "mine.npz"
    np.savez(
        path,
        train_images=images,
        train_labels=np.arange(12)[:, None] % 3,
        test_images=images[:4],
        test_labels=[0, 1, 2, 0],
    )
    ds = load(str(path))
    assert (ds.name, ds.task, ds.class_names, ds.input_shape) == (
        "mine.npz",
        "classification",
        ("0", "1", "2"),
        (3, 9, 9),
    )
    assert torch.equal(ds.test.inputs, torch.from_numpy(images[:4]).movedim(-1, 1))
    assert ds.test.targets.tolist() == [0, 1, 2, 0]


def test_arrays_without_parts_and_folders_of_npy(tmp_path: Path) -> None:
    r = np.random.RandomState(0)
    x, y = r.randn(20, 3), r.randn(20)
    np.savez(tmp_path / "xy.npz", X=x, y=y)
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder/x.npy", x)
    np.save(tmp_path / "folder/y.npy", y)
    one, other = load(str(tmp_path / "xy.npz")), load(str(tmp_path / "folder"))
    assert (one.task, len(one.train), len(one.test)) == ("regression", 16, 4)
    assert torch.equal(one.train.inputs, other.train.inputs) and torch.equal(
        one.test.targets, other.test.targets
    )
    counts = np.arange(20) % 4
    np.savez(tmp_path / "c.npz", x=x, y=counts)
    assert load(str(tmp_path / "c.npz")).num_outputs == 4
    assert load(str(tmp_path / "c.npz"), task="regression").task == "regression"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.zeros(3)}, "name the arrays x and y"),
        ({"x": np.zeros((3, 2))}, "of the arrays only inputs are there"),
        ({"x": np.zeros(3), "y": np.zeros(3)}, "shape (3,) where (examples, …) is expected"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "3 inputs but 4 targets"),
        ({"x": np.zeros((9, 2)), "y": np.array(["a"] * 9)}, "values that are not numbers"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError) as error:
        load(str(tmp_path / "a.npz"))
    assert words in str(error.value)


def test_image_folders_without_parts_and_their_size(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for i in range(10):
            write_image(tmp_path / f"small/{label}/{i}.png", 20, 20, (i, 0, 0))
    ds = load(str(tmp_path / "small"), num_workers=0)
    assert (ds.class_names, ds.input_shape, len(ds.train), len(ds.test)) == (
        ("cat", "dog"),
        (3, 20, 20),
        16,
        4,
    )
    assert {int(i) for i in ds.train.inputs[:][:, 0, 0, 0]} <= set(
        range(10)
    )  # as they are: nothing is scaled
    write_image(tmp_path / "small/cat/wide.png", 30, 20, (0, 0, 0))
    assert load(str(tmp_path / "small"), num_workers=0).input_shape == (3, LARGE, LARGE)
    assert load(str(tmp_path / "small"), num_workers=0, size=16).input_shape == (3, 16, 16)


def test_folders_saved_by_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    datasets.disable_progress_bars()
    label = datasets.ClassLabel(names=["no", "yes"])
    values = {"x": [1.0, None, 3.0] * 10, "c": ["u", "v", "w"] * 10, "label": [0, 1, 1] * 10}
    kinds = {"x": datasets.Value("float32"), "c": datasets.Value("string"), "label": label}
    rows = datasets.Dataset.from_dict(values, features=datasets.Features(kinds))
    datasets.DatasetDict({"train": rows, "validation": rows, "test": rows}).save_to_disk(tmp_path / "rows")
    with pytest.warns(UserWarning, match="column 'x' has no value in 10 of 30 rows"):
        ds = load(str(tmp_path / "rows"))
    assert (ds.class_names, ds.input_shape, len(ds.val)) == (("no", "yes"), (5,), 30)
    pixels = [np.full((6, 6, 3), i, np.uint8) for i in range(10)]
    images = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(p) for p in pixels], "label": [0, 1] * 5},
        features=datasets.Features({"image": datasets.Image(), "label": label}),
    )
    images.save_to_disk(tmp_path / "images")
    ds = load(str(tmp_path / "images"))
    assert (ds.input_shape, len(ds.train), len(ds.test)) == ((3, 6, 6), 8, 2)
    assert load(str(tmp_path / "images"), size=4).input_shape == (3, 4, 4)


def test_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "digits").mkdir()  # a data set's name goes before a folder's
    assert resolve("digits", None) is None
    with pytest.raises(FileNotFoundError, match="data='houses.csv': there is no such file or folder"):
        load("houses.csv")
    with pytest.raises(ValueError, match="data='empty': is neither a table"):
        load("empty")
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        load("digitz")


def make(kind: str, n: int = 20) -> object:
    """What tests name as bayesify_own_data:make."""
    x, y = torch.randn(n, 3), torch.arange(n) % 2
    parts = {
        "pairs": ((x, y), (x, y)),
        "three": tuple(torch.utils.data.TensorDataset(x, y) for _ in range(3)),
        "whole": DataSet.classification("mine", Split(x, y), Split(x, y), ("a", "b")),
    }
    return parts.get(kind, kind)


def test_a_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("bayesify_own_data")
    module.make = make
    monkeypatch.setitem(sys.modules, "bayesify_own_data", module)
    name = "bayesify_own_data:make"
    assert load(name, kind="whole").class_names == ("a", "b")
    assert load(name, kind="pairs", n=30).task == "classification"
    assert len(load(name, kind="three").val) == 20
    with pytest.raises(TypeError, match="returned a str; it must return a bayesify.data.DataSet"):
        load(name, kind="nothing")
    with pytest.raises(RuntimeError, match="failed when called with \\(width=3\\)"):
        load(name, width=3)
