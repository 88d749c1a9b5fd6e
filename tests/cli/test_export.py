"""`bayesify export`: a run as one program, in original units."""

import json
from pathlib import Path

import torch
from cli_runs import fail, succeed

from bayesify.cli.run import Run
from bayesify.cli.units import OriginalUnits
from bayesify.data import load


def test_classes_come_with_their_names_from_bytes(digits: Path, tmp_path: Path) -> None:
    said = succeed("export", digits, "--out", tmp_path / "m.pt2", "--num-draws", "3", "--seed", "5").stdout
    assert "m.pt2: " in said and "passes of the network" in said
    extra = {"bayesify.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    told = json.loads(extra["bayesify.json"])
    assert json.loads(told["class_names"]) == [str(i) for i in range(10)]
    assert told["seed"] == "5"
    run, test = Run.at(digits), load("digits").test
    images = test.inputs[:20]
    found = program(images)["probs"]
    generator = torch.Generator().manual_seed(5)
    expected = run.model().freeze(3, generator)(run.normalisation.inputs(images))
    torch.testing.assert_close(found, expected.probs, rtol=1e-4, atol=1e-5)


def test_numbers_come_in_original_units(diabetes: Path, tmp_path: Path) -> None:
    succeed("export", diabetes, "--out", tmp_path / "m.pt2", "--num-draws", "8")
    run, x = Run.at(diabetes), load("diabetes").test.inputs[:20].float()
    model = OriginalUnits(run.model(), run.normalisation, batched=True)
    expected = model.predict(run.normalisation.inputs(x), 8, generator=torch.Generator().manual_seed(0))
    found = torch.export.load(tmp_path / "m.pt2").module()(x)
    for name in ("mean", "variance", "epistemic"):
        torch.testing.assert_close(found[name], getattr(expected, name), rtol=1e-3, atol=1e-3)


def test_a_file_of_another_kind_is_refused(digits: Path, tmp_path: Path) -> None:
    assert "must end in .pt2 or .onnx" in fail("export", digits, "--out", tmp_path / "m.tflite")
