"""Predictions for inputs that carry variance: what the input adds, apart from what the weights do."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.files.predictions import write_predictions
from bayesify.predict.calibration import calibrated


def noisy_linear() -> tuple[bf.BayesianModule, bf.Moments]:
    model = bf.bayesify(nn.Linear(3, 2), bf.DensityPropagation(), bf.likelihood("normal", std=0.5))
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.fill_(math.log(0.3))  # log std of every weight
    return model.double(), bf.Moments(torch.randn(4, 3).double(), torch.rand(4, 3).double())


def test_noise_in_the_input_is_told_from_random_weights() -> None:
    """y = w·x + b: Var y = Σ Var w (E x)² + Var b of the weights, Σ ((E w)² + Var w) Var x of the input."""
    model, x = noisy_linear()
    prediction = model.predict(x, 30)
    of_weights = 0.09 * x.mean.square().sum(1, keepdim=True).expand(4, 2) + 0.09
    of_input = x.var @ (model.net.weight.detach().square() + 0.09).T
    torch.testing.assert_close(prediction.epistemic, of_weights)
    torch.testing.assert_close(prediction.input_noise, of_input)
    torch.testing.assert_close(prediction.input_variance, of_input)
    torch.testing.assert_close(prediction.aleatoric, torch.full((4, 2), 0.25).double())
    torch.testing.assert_close(prediction.variance, of_weights + of_input + 0.25)
    exact = model.predict(x.mean, 30)
    torch.testing.assert_close(exact.epistemic, of_weights)
    assert not exact.input_noise.any() and not exact.input_variance.any()


def test_input_noise_stays_with_a_prediction(tmp_path: Path) -> None:
    model, x = noisy_linear()
    whole = model.predict(x, 30)
    halves = [bf.Moments(x.mean[:3], x.var[:3]), bf.Moments(x.mean[3:], x.var[3:])]
    torch.testing.assert_close(model.predict(iter(halves), 30).input_noise, whole.input_noise)
    mixed = model.predict(iter([x, x.mean]), 30)  # a batch with an exact input beside it
    torch.testing.assert_close(mixed.input_noise, torch.cat([whole.input_noise, 0 * whole.input_noise]))
    assert torch.equal(whole.to("cpu").input_noise, whole.input_noise)
    torch.testing.assert_close(calibrated(whole, 4.0).input_noise, 4 * whole.input_noise)
    write_predictions(model, halves, tmp_path / "p.npz", 30)
    with np.load(tmp_path / "p.npz") as found:
        torch.testing.assert_close(torch.from_numpy(found["input_noise_std"]), whole.input_noise.sqrt())


@pytest.mark.parametrize("seeded", [True, False])
def test_input_noise_of_classes_adds_up_to_the_entropy(seeded: bool) -> None:
    model = bf.bayesify(nn.Linear(3, 4), bf.DensityPropagation())
    x = torch.randn(50, 3)
    generator = torch.Generator().manual_seed(0) if seeded else None
    noisy = model.predict(bf.Moments(x, torch.full_like(x, 0.5)), 200, generator=generator)
    torch.testing.assert_close(noisy.aleatoric + noisy.epistemic + noisy.input_noise, noisy.entropy)
    assert (
        noisy.input_noise > 10 * noisy.epistemic
    ).all()  # the weights have a twentieth of their size as std
    assert (noisy.input_variance <= noisy.variance).all()
    without_noise = model.predict(bf.Moments(x, torch.zeros_like(x)), 200, generator=generator)
    assert not without_noise.input_noise.any()  # both passes have the same random numbers
