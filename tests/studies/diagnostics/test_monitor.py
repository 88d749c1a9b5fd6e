"""Temperatures, thermostats and the verdict, where the truth is known."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.samplers import ATMC, SGHMC, SGLD, SGNHT
from bayesify.studies.diagnostics import Monitor, Row, plot, verdict


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
    monitor = watched(ATMC, 0.5, noise=1.0, max_speed=max_speed)
    row = monitor.rows()[0]
    assert row.kinetic == pytest.approx(1, abs=0.03)
    assert row.configurational == pytest.approx(1, abs=0.05)
    assert row.thermostat == pytest.approx(0.25, abs=0.05)
    assert row.predicted == pytest.approx(0.25, rel=0.05)
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
    assert "more than 0.3 D in 1 of 1 parameters (2 D in" in verdict([row(thermostat=2.0, predicted=2.0)])[0]
    assert "the chains do not agree (R-hat 1.30" in verdict([row()], rhat=1.3)[0]
    assert "worth 3 independent ones" in verdict([row()], ess=3.0)[0]
    assert verdict([row()], rhat=math.nan)[0].startswith("R-hat is not a number")
    assert "worth 4 independent ones" in verdict([row()], loss_ess=4.0)[0]
    assert verdict([row(kinetic=1.1, kinetic_error=0.2)])[0].startswith("nothing")  # within its error


def test_a_sampler_without_momentum_is_not_told_of_masses_and_thermostats() -> None:
    absent = dict.fromkeys(("kinetic", "kinetic_error", "thermostat", "predicted", "noise"), math.nan)
    for temperature in (0.5, 1.5):
        (words,) = verdict([row(configurational=temperature, **absent)])
        assert "than the posterior by 50%" in words and "mass" not in words and "thermostat" not in words
    assert "mass" in verdict([row(configurational=1.5)])[0]
    shown = str(watched(SGLD, 0.0))
    assert shown.splitlines()[0].split() == ["parameter", "config.", "T"] and "nan" not in shown


def test_nothing_yet_and_bad_numbers() -> None:
    sampler = ATMC([nn.Parameter(torch.ones(2))], lr=0.1, num_data=1)
    with pytest.raises(RuntimeError, match="nothing to report yet: take at least 90 steps"):
        Monitor(sampler).rows()
    with pytest.raises(ValueError, match="every=1"):
        Monitor(sampler, every=1)
    with pytest.raises(TypeError, match="sampler=Adam must be one of bf.samplers"):
        Monitor(torch.optim.Adam([nn.Parameter(torch.ones(2))]))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="at temperature 0 the sampler optimises"):
        watched(SGLD, 0.0, steps=700, temperature=0.0).rows()


def test_the_prediction_is_of_the_step_sizes_there_were() -> None:
    """A schedule may end at a step of 0: E ξ = h Var G / 2m was predicted with those before it."""
    monitor = watched(ATMC, 1.0, steps=1000, noise=1.0)
    monitor.sampler.param_groups[0]["lr"] = 0.0
    assert monitor.rows()[0].predicted == pytest.approx(0.5, rel=0.05)


def test_parameters_without_a_model_have_names_of_their_own() -> None:
    thetas = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    sampler = SGLD(thetas, lr=0.1, num_data=1)
    monitor = Monitor(sampler)
    for _ in range(100):
        for theta in thetas:
            theta.grad = theta.detach().clone()
        sampler.step()
    assert [row.name for row in monitor.rows()] == ["parameter 0", "parameter 1", "parameter 2"]


class Told(nn.Module):
    """A model whose losses are given."""

    def __init__(self, losses: torch.Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))
        self.losses = iter(losses)

    def forward(self, told: bool = True) -> Any:
        total = next(self.losses) + 0 * self.w.sum()
        return bf.Loss(total, total, total) if told else total


def told(losses: torch.Tensor, every: int) -> Monitor:
    model = Told(losses)
    sampler = SGLD([model.w], lr=0.1, num_data=1)
    monitor = Monitor(sampler, model, every=every)
    for _ in range(len(losses)):
        sampler.zero_grad()
        model().total.backward()
        sampler.step()
    return monitor


def test_the_autocorrelation_of_the_loss() -> None:
    """x_t = φ x_{t−1} + e_t in means of k: ρ₁ = φ (1 − φᵏ)² / (k (1 − φ²) − 2 φ (1 − φᵏ)), ρ_j = ρ₁ φ^{k (j − 1)}.

    1500 means; Bartlett's standard error of ρ is below √((1 + 2 Σρ²) / 1500) = 0.037, five of which are 0.19.
    Of the time τ = 1 + 2 Σρ it is τ √(2 (2 M + 1) / 1500) with a window of M = 5 τ means: 0.23 τ.
    """
    phi, k, n = 0.9, 5, 10_000
    generator = torch.Generator().manual_seed(0)
    values, noise = torch.zeros(n), torch.randn(n, generator=generator)
    for t in range(1, n):
        values[t] = phi * values[t - 1] + noise[t]
    monitor = told(values, k)
    block = 1 - phi**k
    first = phi * block**2 / (k * (1 - phi**2) - 2 * phi * block)
    found = monitor.losses.autocorrelation()
    assert len(found) == 1500
    for lag in (1, 2, 3):
        assert found[lag].item() == pytest.approx(first * phi ** (k * (lag - 1)), abs=0.19)
    time = 1 + 2 * first / block
    worth = monitor.losses.independent()
    assert worth is not None and 1500 / worth == pytest.approx(time, rel=0.7)
    assert "loss: correlated over" in str(monitor)
    assert monitor.losses.means[0] == pytest.approx(values[:k].mean().item(), rel=1e-5)


def test_a_loss_that_still_falls() -> None:
    monitor = told(torch.linspace(3, 1, 800), 10)
    worth = monitor.losses.independent()
    assert worth is not None and worth < 10
    assert "the loss is correlated over most of the run" in str(monitor)


def test_only_training_losses_are_heard() -> None:
    model = Told(torch.ones(100))
    monitor = Monitor(SGLD([model.w], lr=0.1, num_data=1), model)
    with torch.no_grad():
        model()
    model(told=False)
    assert not monitor.losses.pending
    monitor.close()
    model()
    assert not monitor.losses.pending


def test_plot(tmp_path: Path) -> None:
    plot(watched(ATMC, 1.0, steps=700, noise=1.0), tmp_path / "monitor.png")
    assert (tmp_path / "monitor.png").stat().st_size > 5000
    plot(told(torch.randn(200), 5), tmp_path / "losses.png")
    assert (tmp_path / "losses.png").stat().st_size > 5000


def test_plots_hold_only_what_the_sampler_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles, and the steps of the sampler also where the monitor came late."""
    figures: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path: figures.append(figure))
    for monitor in (watched(ATMC, 1.0, 700, noise=1.0), watched(SGNHT, 1.0, 700, noise=0.0)):
        plot(monitor, tmp_path)
    plot(told(torch.randn(200), 5), tmp_path)
    titles = [[axes.get_title() for axes in figure.axes] for figure in figures]
    temperature, loss = "kinetic temperature", "autocorrelation of the loss"
    assert titles == [[temperature, "thermostat ξ / D"], [temperature], [loss]]
    assert list(figures[0].axes[0].lines[0].get_xdata())[:2] == [505, 510]
    with pytest.raises(RuntimeError, match="nothing to draw yet"):
        plot(Monitor(SGLD([nn.Parameter(torch.ones(2))], lr=0.1, num_data=1)), tmp_path)
