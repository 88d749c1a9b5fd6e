"""`bayesify predict` notices inputs that are in another unit than the training data."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runs import read, succeed
from data_digits import digit_image
from torch import Tensor

from bayesify.cli.input_scale import other_scale, scale_of
from bayesify.cli.inputs import read_examples
from bayesify.data import Split, load


def kept(inputs: Tensor) -> dict[str, list[float]]:
    found = scale_of(Split(inputs, torch.zeros(len(inputs), dtype=torch.int64)))
    assert found is not None
    return found


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


HEIGHTS = 1.7 + 0.1 * normal(400, 3)  # metres
IMAGES = torch.rand(50, 3, 8, 8, generator=torch.Generator().manual_seed(0))
BYTES = (255 * IMAGES).to(torch.uint8)


@pytest.mark.parametrize(
    ("train", "inputs", "found"),
    [
        (HEIGHTS, 100 * HEIGHTS[:5], r"feature \d go from 1\d\d.* to [12]\d\d.*, .* \(5 of 5 examples"),
        (HEIGHTS, 100 * HEIGHTS[:1], "1 of 1 examples"),
        (HEIGHTS, HEIGHTS / 1000, "400 of 400 examples"),  # kilometres: far below the smallest
        (HEIGHTS, torch.cat([HEIGHTS[:5, :2], 100 * HEIGHTS[:5, 2:]], 1), "the inputs of feature 2 go from"),
        (IMAGES, 255 * IMAGES[:1], r"channel \d go from .* to 25\d.*, those of the training data from"),
        (255 * IMAGES, IMAGES, r"go from .* to (1|0\.99\d*), .* to 25\d.* \(all examples\)"),
        (BYTES, (BYTES > 100).to(torch.uint8), "all examples"),  # 0 and 1 for 0 and 255
    ],
)
def test_another_unit_is_seen(train: Tensor, inputs: Tensor, found: str) -> None:
    text = other_scale(inputs, kept(train))
    assert text is not None and re.search(found, text), text


LARGE = IMAGES.repeat(1, 1, 2, 2)
HEAVY = normal(400, 10).exp() ** 2  # log-normal: the largest of 400 is fifty times the mean


@pytest.mark.parametrize(
    ("train", "inputs"),
    [
        (HEIGHTS, 1.7 + 0.1 * normal(4000, 3, seed=1)),
        (HEIGHTS[:4], 1.7 + 0.1 * normal(4000, 3, seed=1)),
        (HEAVY, normal(4000, 10, seed=1).exp() ** 2),
        (HEIGHTS, torch.cat([HEIGHTS[:19], 100 * HEIGHTS[:1]])),  # a slip in one of twenty
        (normal(400, 1), torch.tensor([[0.001]])),
        (torch.ones(20, 3), torch.full((5, 3), 7.0)),  # a constant has no scale
        (BYTES, torch.zeros(2, 3, 8, 8, dtype=torch.uint8)),
        (BYTES, IMAGES),
        (LARGE, torch.where(torch.arange(256).view(16, 16) == 0, 50.0, LARGE)),  # a hot pixel
    ],
)
def test_other_examples_of_the_same_unit_are_not_remarked_on(train: Tensor, inputs: Tensor) -> None:
    assert other_scale(inputs, kept(train)) is None


def test_what_a_run_keeps() -> None:
    found = kept(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
    assert found == {"mean": [1.0, 5.0], "std": [1.0, 0.0], "min": [0.0, 5.0], "max": [2.0, 5.0]}
    assert len(kept(BYTES)["max"]) == 3 and max(kept(BYTES)["max"]) <= 1
    assert len(kept(normal(3, 5000))["mean"]) == 1


def test_bytes_are_numbers_for_a_network_of_features(tmp_path: Path) -> None:
    """They were taken for an image, and divided by 255."""
    np.save(tmp_path / "x.npy", np.array([[30, 70]], np.uint8))
    found = read_examples(tmp_path / "x.npy", {"input_shape": [2], "inputs": "floats"}, {"name": "uci"})
    assert found.dtype == torch.float32 and found.tolist() == [[30.0, 70.0]]


def warnings_of(*arguments: object) -> list[str]:
    lines = succeed("predict", *arguments).stderr.splitlines()
    return [line for line in lines if line.startswith("warning: ")]


def test_one_warning_for_all_files(diabetes: Path, tmp_path: Path) -> None:
    test = load("diabetes").test.inputs.numpy()
    np.save(tmp_path / "right.npy", test)
    np.save(tmp_path / "one.npy", test[0])
    np.save(tmp_path / "wrong.npy", 100 * test)
    right, wrong = tmp_path / "right.npy", tmp_path / "wrong.npy"
    assert warnings_of(diabetes, right, tmp_path / "one.npy") == []
    (said,) = warnings_of(diabetes, right, wrong)
    assert said.startswith(f"warning: {wrong}: the inputs of feature") and "so in" not in said
    assert "unit of the training data" in said
    (said,) = warnings_of(diabetes, wrong, wrong)
    assert said.endswith("(so in 2 files)")


def test_images_of_zeros_and_ones(digits: Path, tmp_path: Path) -> None:
    pixels = digit_image(3)
    np.save(tmp_path / "right.npy", pixels)
    np.save(tmp_path / "wrong.npy", (pixels > 100).astype(np.uint8))
    assert warnings_of(digits, tmp_path / "right.npy") == []
    (said,) = warnings_of(digits, tmp_path / "wrong.npy")
    assert "go from 0 to 0.003922, those of the training data from 0 to 1" in said


def test_a_run_that_kept_no_scale(diabetes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(diabetes, folder)
    config = read(folder)
    assert len(config["task"].pop("scale")["mean"]) == 10
    (folder / "config.json").write_text(json.dumps(config))
    np.save(tmp_path / "wrong.npy", 100 * load("diabetes").test.inputs.numpy())
    assert warnings_of(folder, tmp_path / "wrong.npy") == []
