"""bf.fit(calibrate=True): the number of `bf.calibrate`, at the end of a run, in its file."""

from pathlib import Path
from typing import Any

import members_job
import pytest
import torch
from quick_fit import quick
from torch import Generator, nn
from torch.utils.data import DataLoader, TensorDataset
from training_job import data, model

import bayesify as bf
from bayesify.data import Loader
from bayesify.engine import fit_members


def by_hand(trained: bf.BayesianModule, epoch: int, **options: Any) -> float | None:
    before = trained.calibration
    found = bf.calibrate(
        trained, Loader(data().test, 40), generator=Generator().manual_seed(epoch), **options
    )
    trained.calibration = before
    return found


def test_the_model_and_its_file_are_calibrated(tmp_path: Path) -> None:
    made = model("mc_vi")
    history = quick(model=made, recipe=None, calibrate=True, folder=tmp_path)
    assert made.calibration == by_hand(made, 2) is not None
    assert f"calibrated on the validation data: temperature {made.calibration:.4g}" in history.notes
    assert "predictions are calibrated: temperature" in str(made.summary())
    loaded = bf.load(tmp_path / "model.safetensors", model("mc_vi").net)
    assert loaded.calibration == made.calibration
    again = model("mc_vi")
    quick(model=again, recipe=None, calibrate=True, folder=tmp_path)  # a run that is finished already
    assert again.calibration == made.calibration
    longer = model("mc_vi")
    quick(model=longer, recipe=None, calibrate=True, folder=tmp_path, epochs=3)
    assert longer.calibration == by_hand(longer, 3) != made.calibration
    assert quick(model=longer, recipe=None, epochs=1) and longer.calibration is None


def test_a_regression_has_its_variance_scaled() -> None:
    """The noise is 0.1 and the model is told 1: the scale is close to the mean squared error."""
    x = torch.randn(400, 2, generator=Generator().manual_seed(0))
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(400, 1, generator=Generator().manual_seed(1))
    fitted = bf.bayesify(nn.Linear(2, 1), "point", bf.likelihood("normal", std=1.0))
    train, val = (DataLoader(TensorDataset(x[s], y[s]), 50) for s in (slice(300), slice(300, 400)))
    history = bf.fit(fitted, train, val, epochs=30, lr=0.05, calibrate=True, progress=False)
    assert fitted.calibration is not None
    assert any(note.startswith("calibrated on the validation data: variance scale") for note in history.notes)
    found = bf.evaluate(fitted, val)
    assert found["std"] == pytest.approx(found["rmse"], rel=1e-3)


def test_learned_noise_is_calibrated_by_itself() -> None:
    """Noise near its start is mended; a noise that was given, few targets, and training data are left."""
    x = torch.randn(400, 2, generator=Generator().manual_seed(0))
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(400, 1, generator=Generator().manual_seed(1))

    def calibrated(likelihood: Any, start: int = 300, **options: Any) -> float | None:
        fitted = bf.bayesify(nn.Linear(2, 1), "point", likelihood)
        train, val = (DataLoader(TensorDataset(x[s], y[s]), 50) for s in (slice(300), slice(start, 400)))
        bf.fit(fitted, train, val, epochs=5, lr=0.05, progress=False, **options)
        if likelihood == "normal" and fitted.calibration is not None:
            found = bf.evaluate(fitted, val)
            assert found["std"] == pytest.approx(found["rmse"], rel=1e-3)
        return fitted.calibration

    assert calibrated("normal") is not None
    assert calibrated("student_t") is not None
    assert calibrated("normal", calibrate=False) is None
    assert calibrated(bf.likelihood("normal", std=1.0)) is None
    assert calibrated("normal", start=381) is None
    fitted = bf.bayesify(nn.Linear(2, 1), "point", "normal")
    same = [(x[:300], y[:300])]
    bf.fit(fitted, same, same, epochs=1, progress=False)
    assert fitted.calibration is None


def test_members_trained_apart_are_calibrated_together(tmp_path: Path) -> None:
    make, loaders = members_job.make_model, members_job.loaders()
    options: dict[str, Any] = {"recipe": None, "seed": 3, "epochs": 1, "progress": False}
    merged = fit_members(make, *loaders, num_members=2, folder=tmp_path, calibrate=True, **options)
    assert merged is not None and merged.calibration is not None
    assert bf.load(tmp_path / "model.safetensors", make().mean_net()).calibration == merged.calibration
