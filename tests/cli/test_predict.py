"""`bayesify predict`: a person's own files, each with its uncertainty."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runs import fail, invoke, read, succeed
from data_digits import digit_image
from PIL import Image

import bayesify as bf
from bayesify.cli.inputs import read_examples
from bayesify.cli.run import Run
from bayesify.data import load

GREY = {"input_shape": [1, 4, 6], "inputs": "bytes"}
COLOUR = {"input_shape": [3, 4, 6], "inputs": "bytes"}
PLAIN = {"name": "mnist"}


def predictions(tmp_path: Path, *arguments: object) -> list[dict[str, Any]]:
    succeed("predict", *arguments, "--json", tmp_path / "p.json")
    return json.loads((tmp_path / "p.json").read_text())


def test_a_batch_of_arrays_gives_the_accuracy_of_the_test(digits: Path, tmp_path: Path) -> None:
    test = load("digits").test
    np.save(tmp_path / "x.npy", test.inputs.numpy())
    rows = predictions(tmp_path, digits, tmp_path / "x.npy", "--batch-size", "100")
    right = [row["label"] == str(int(y)) for row, y in zip(rows, test.targets, strict=True)]
    assert sum(right) / len(right) == pytest.approx(
        read(digits, "summary.json")["test"]["accuracy"], abs=0.02
    )
    assert [row["index"] for row in rows] == list(range(359))
    assert sum(rows[0]["probs"]) == pytest.approx(1, abs=1e-5)
    assert rows[0]["confidence"] == pytest.approx(max(rows[0]["probs"]))
    assert all(row["epistemic"] >= 0 and row["entropy"] > 0 for row in rows)


def test_an_image_says_the_same_as_its_array(digits: Path, tmp_path: Path) -> None:
    pixels = digit_image(3)  # (8, 8) bytes
    Image.fromarray(pixels).save(tmp_path / "grey.png")
    Image.fromarray(pixels).convert("RGB").resize((8, 8)).save(tmp_path / "colour.png")
    np.save(tmp_path / "bytes.npy", pixels)
    np.savez(tmp_path / "floats.npz", x=pixels.astype(np.float64)[None] / 255)
    names = ("grey.png", "colour.png", "bytes.npy", "floats.npz")
    rows = [predictions(tmp_path, digits, tmp_path / name, "--num-draws", "200")[0] for name in names]
    for row in rows[1:]:
        assert row["probs"] == pytest.approx(rows[0]["probs"], abs=0.01)


def test_table_and_csv(digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", load("digits").test.inputs[:3].numpy())
    result = succeed("predict", digits, tmp_path / "x.npy", "--csv", tmp_path / "p.csv")
    assert "3 predictions, 20 draws each" in result.stdout
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "index", "label", "confidence", "entropy", "epistemic"]
    assert len(rows) == 3


def test_regression_in_original_units(diabetes: Path, tmp_path: Path) -> None:
    test = load("diabetes").test
    np.save(tmp_path / "x.npy", test.inputs.numpy())
    np.save(tmp_path / "one.npy", test.inputs[0].numpy())
    rows = predictions(tmp_path, diabetes, tmp_path / "x.npy", tmp_path / "one.npy", "--num-draws", "50")
    mean = torch.tensor([row["mean"] for row in rows[:-1]])
    rmse = (mean - test.targets[:, 0].float()).square().mean().sqrt()
    assert float(rmse) == pytest.approx(read(diabetes, "summary.json")["test"]["rmse"], rel=0.05)
    assert rows[-1]["mean"] == pytest.approx(rows[0]["mean"], rel=0.1)
    assert rows[0]["std"] ** 2 == pytest.approx(
        rows[0]["noise_std"] ** 2 + rows[0]["epistemic_std"] ** 2, rel=1e-4
    )
    assert "mean ± std" in succeed("predict", diabetes, tmp_path / "one.npy").stdout


def test_unreadable_files_are_named_after_the_others_are_done(digits: Path, tmp_path: Path) -> None:
    Image.fromarray(digit_image(0)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"not an image")
    (tmp_path / "bad.npy").write_bytes(b"not an array")
    names = ("gone.png", "bad.png", "good.png", "bad.npy", "folder")
    (tmp_path / "folder").mkdir()
    files = [tmp_path / name for name in names]
    result = invoke("predict", digits, *files, "--csv", tmp_path / "p.csv")
    assert result.exit_code == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert [Path(line.split(": ")[1]).name for line in errors] == ["gone.png", "bad.png", "bad.npy", "folder"]
    assert "there is no such file" in errors[0]
    assert "not a readable image" in errors[1]
    assert "holds no file that can be read (.npy, " in errors[3]
    assert "1 prediction, 20 draws each" in result.stdout
    assert (tmp_path / "p.csv").exists()
    assert "Missing argument" in fail("predict", digits)


@pytest.mark.parametrize(
    ("shape", "task", "num"),
    [
        ((1, 4, 6), GREY, 1),
        ((4, 6), GREY, 1),
        ((5, 4, 6), GREY, 5),
        ((5, 1, 4, 6), GREY, 5),
        ((5, 4, 6, 1), GREY, 5),
        ((3, 4, 6), COLOUR, 1),
        ((4, 6, 3), COLOUR, 1),
        ((2, 4, 6, 3), COLOUR, 2),
        ((2, 3, 4, 6), COLOUR, 2),
        ((7,), {"input_shape": [7], "inputs": "floats"}, 1),
        ((5, 7), {"input_shape": [7], "inputs": "floats"}, 5),
    ],
)
def test_shapes(shape: tuple[int, ...], task: dict[str, Any], num: int, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(shape, np.uint8))
    examples = read_examples(tmp_path / "x.npy", task, PLAIN)
    assert tuple(examples.shape) == (num, *task["input_shape"])


def test_images_are_scaled_and_converted(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), (255, 0, 0)).save(tmp_path / "red.jpg", quality=100)
    colour = read_examples(tmp_path / "red.jpg", COLOUR, PLAIN)
    assert colour.shape == (1, 3, 4, 6)
    assert colour[0, :, 0, 0].tolist() == pytest.approx([255, 0, 0], abs=2)
    grey = read_examples(tmp_path / "red.jpg", GREY, PLAIN)
    assert grey.float().mean() == pytest.approx(76, abs=2)  # the usual weight of red
    Image.fromarray(np.full((4, 6), 0x4D80, np.uint16)).save(tmp_path / "grey.png")  # 16 bits
    assert read_examples(tmp_path / "grey.png", GREY, PLAIN).unique().tolist() == [0x4D]
    square = {"input_shape": [3, 8, 8], "inputs": "bytes"}
    cropped = read_examples(tmp_path / "red.jpg", square, {"name": "image_folder", "resize": None})
    assert cropped.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 2))}, r"has shape \(2, 2\): the network takes \(1, 4, 6\)"),
        ({"x": np.zeros((0, 4, 6))}, r"has shape \(0, 1, 4, 6\): it holds no example"),
        ({"a": np.zeros((4, 6)), "b": np.zeros((4, 6))}, "holds a, b: name the one to use x"),
        ({"x": np.full((4, 6), np.nan)}, "NaN or infinite"),
        ({"x": np.full((4, 6), "a")}, "which are not numbers"),
        ({"x": np.full((4, 6), 200.0)}, r"values from 200 to 200: give bytes \(uint8, 0 to 255\)"),
        ({"x": np.array([None])}, "not a readable .npz file"),
    ],
)
def test_arrays_that_cannot_be_used(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_examples(tmp_path / "x.npz", GREY, PLAIN)


def test_an_image_for_a_network_of_features(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "x.png")
    with pytest.raises(ValueError, match=r"does not fit the network's input \(7,\)"):
        read_examples(tmp_path / "x.png", {"input_shape": [7], "inputs": "floats"}, PLAIN)


@pytest.mark.filterwarnings("ignore:.*holds NaN or infinite numbers")
def test_a_model_that_predicts_nan_names_the_examples(digits: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(digits, run)
    model = Run.at(run).model("last", torch.device("cpu"))
    with torch.no_grad():
        next(model.net.parameters())[:, :10] = torch.nan
    bf.save(model, run / "model.safetensors")
    np.save(tmp_path / "x.npy", load("digits").test.inputs[:3].numpy())
    message = "the predictions of 3 of 3 examples (counted from 0: 0, 1, 2) are NaN"
    assert f"x.npy: {message}" in fail("predict", run, tmp_path / "x.npy", code=1)
    assert "examples (counted from 0: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and" in fail("evaluate", run)
