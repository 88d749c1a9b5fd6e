"""Temperatures, thermostats and the verdict, where the truth is known."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.diagnostics import Monitor, Row, suggest, verdict
from bayesify.diagnostics.plot import plot
from bayesify.samplers import ATMC, SGHMC, SGLD


def watched(cls: Any, gradient_noise: float, steps: int = 2500, **settings: Any) -> Monitor:
    """4000 coordinates of N(2, 1), in equilibrium before the monitor looks."""
    theta = nn.Parameter(2 + torch.randn(4000))
    sampler = cls([theta], lr=0.1, num_data=5, **settings)
    monitor = None
    for step in range(steps):
        if step == 500:
            monitor = Monitor(sampler, every=5)
        noise = math.sqrt(gradient_noise / 0.1) * torch.randn(4000)
        theta.grad = (theta.detach() - 2 + noise) / 5
        sampler.step()
    assert monitor is not None
    return monitor


@pytest.mark.parametrize("max_speed", [None, 2.0])
def test_a_good_sampler_is_called_good(max_speed: float | None) -> None:
    """400 looks at 4000 coordinates: temperatures to about 1 %."""
    monitor = watched(ATMC, 1.0, noise=1.0, max_speed=max_speed)
    row = monitor.rows()[0]
    assert row.kinetic == pytest.approx(1, abs=0.03)
    assert row.configurational == pytest.approx(1, abs=0.05)
    assert row.thermostat == pytest.approx(0.5, abs=0.05)
    assert row.predicted == pytest.approx(0.5, rel=0.05)
    assert verdict(monitor.rows(), monitor.drift())[0].startswith("nothing speaks against")
    assert "nothing speaks against" in str(monitor)


def test_a_hot_one_is_called_hot() -> None:
    monitor = watched(SGHMC, 1.0, noise=1.0)
    row = monitor.rows()[0]
    assert row.kinetic == pytest.approx(1.5, abs=0.05)
    assert row.configurational == pytest.approx(1.5, abs=0.08)
    words = verdict(monitor.rows())
    assert words[0].startswith(("hotter than the posterior by 5", "hotter than the posterior by 4"))
    assert "use a thermostat" in words[0]


def test_without_momentum() -> None:
    row = watched(SGLD, 0.0).rows()[0]
    assert math.isnan(row.kinetic)
    assert row.configurational == pytest.approx(1 / 0.95, abs=0.05)


def test_a_thermostat_that_is_too_slow() -> None:
    monitor = watched(ATMC, 4.0, steps=900, noise=1.0, thermostat_rate=0.02)
    assert monitor.drift() > 0.05
    assert any("thermostat is still moving" in line for line in verdict(monitor.rows(), monitor.drift()))


def row(**changes: float) -> Row:
    right = Row("w", 1.0, 0.01, 1.0, 0.01, 0.1, 0.1, 1.0)
    return right._replace(**changes)  # type: ignore[arg-type]


def test_words() -> None:
    assert verdict([row(configurational=0.88)])[0].startswith(
        "colder than the posterior by 12% (configurational"
    )
    assert verdict([row(kinetic=0.9)])[0].startswith("colder than the posterior by 10% (kinetic")
    assert "stands at 2, gradient noise predicts 0.1" in verdict([row(thermostat=2.0)])[0]
    assert "gradient noise alone is more than D" in verdict([row(thermostat=2.0, predicted=2.0)])[0]
    assert "the chains do not agree (R-hat 1.30" in verdict([row()], rhat=1.3)[0]
    assert "worth 3 independent ones" in verdict([row()], ess=3.0)[0]
    assert verdict([row(kinetic=1.1, kinetic_error=0.2)])[0].startswith("nothing")  # within its error


def test_nothing_yet_and_bad_numbers() -> None:
    sampler = ATMC([nn.Parameter(torch.ones(2))], lr=0.1, num_data=1)
    with pytest.raises(RuntimeError, match="nothing to report yet: take at least 90 steps"):
        Monitor(sampler).rows()
    with pytest.raises(ValueError, match="every=1"):
        Monitor(sampler, every=1)


def test_plot(tmp_path: Path) -> None:
    plot(watched(ATMC, 1.0, steps=700, noise=1.0), tmp_path / "monitor.png")
    assert (tmp_path / "monitor.png").stat().st_size > 5000


def test_suggested_mass_from_a_known_curvature() -> None:
    """Linear regression with unit noise: λ̄ of the mean loss is the largest eigenvalue of XᵀX/n + 1/num_data."""
    torch.manual_seed(0)
    net = nn.Linear(3, 1, bias=False)
    x = torch.randn(200, 3) * torch.tensor([3.0, 1.0, 0.5])
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood="normal", num_data=200)
    found = suggest(model, x, torch.randn(200, 1), lr=0.01)
    curvature = torch.linalg.eigvalsh(x.T @ x / 200)[-1].item() + 1 / 200
    assert found.mass == pytest.approx(200 * curvature * 1e-4 / 0.09, rel=0.01)
    assert "√(num_data" in str(found)
    model.num_data = None
    with pytest.raises(ValueError, match="num_data is missing"):
        suggest(model, x, torch.randn(200, 1))
