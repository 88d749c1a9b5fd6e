"""Predictions and targets in original units."""

import math
from pathlib import Path

import pytest
import torch
from cli_runs import read, succeed
from torch import nn

import bayesify as bf
from bayesify.cli.units import OriginalUnits
from bayesify.data import Normalisation


@pytest.mark.parametrize("likelihood", ["normal", "student_t"])
def test_a_density_in_original_units_has_the_factor_of_the_change(likelihood: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(30, 3), 150 + 70 * torch.randn(30, 2)
    units = Normalisation.of(x, y)
    model = bf.bayesify(nn.Linear(3, 2), bf.MonteCarloVI(), likelihood)
    seen = OriginalUnits(model, units)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for keep in (False, True):
        inside = model.predict(x, 4, generator=generators[0], keep_samples=keep)
        outside = seen.predict(x, 4, generator=generators[1], keep_samples=keep)
        assert units.target_std is not None
        expected = inside.log_prob(units.targets(y)) - float(units.target_std.log().sum())
        torch.testing.assert_close(outside.log_prob(y), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(outside.cdf(y), inside.cdf(units.targets(y)), rtol=0, atol=1e-5)
    for found, known in zip(outside.interval(), inside.interval(), strict=True):
        torch.testing.assert_close(found, units.original_mean(known), rtol=1e-4, atol=1e-3)


def test_counts_are_not_standardised(tmp_path: Path) -> None:
    """Targets of `diabetes` are whole numbers."""
    run = ("--method", "point", "--net", "mlp", "--data", "diabetes", "--epochs", "2")
    succeed("train", *run, "--likelihood", "poisson", "--folder", tmp_path)
    assert read(tmp_path, "config.json")["task"]["normalisation"]["target_mean"] is None
    succeed("evaluate", tmp_path, "--suite", "calibration", "--num-draws", "1")
    assert math.isfinite(read(tmp_path, "evaluation.json")["metrics"]["calibration"]["nll"])
