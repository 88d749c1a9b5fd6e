"""Every figure draws as a part of a page."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayesify.report.figures import calibration, examples, posterior, shift, svg
from bayesify.report.figures.style import lines

X, Y = np.linspace(0, 1, 5), np.linspace(0.2, 0.9, 5)
SERIES = [("first & <second>", X, Y), ("other", X, Y**2)]
RANDOM = np.random.RandomState(0)

FIGURES: dict[str, Any] = {
    "reliability": lambda: calibration.reliability(
        np.arange(15.0), X[-1] * np.linspace(0, 1, 15), np.full(15, 0.5), "t", 0.1
    ),
    "confidence_accuracy": lambda: calibration.confidence_sets(SERIES, "accuracy"),
    "confidence_size": lambda: calibration.confidence_sets(SERIES, "size"),
    "calibration_curve": lambda: calibration.calibration_curve(SERIES),
    "band": lambda: calibration.band(X, Y, 0.1 + X, Y, "one input"),
    "coverage": lambda: calibration.coverage([*SERIES, ("left out", X[:0], Y[:0])]),
    "set_size": lambda: calibration.set_size(SERIES, "width"),
    "under_shift": lambda: calibration.under_shift(SERIES, list("abcde"), 0.9),
    "entropy": lambda: shift.entropy_histograms(
        np.linspace(0, 2, 6), np.full(5, 0.2), {"noise": Y / Y.sum()}, "t"
    ),
    "severity": lambda: shift.severity([("a", np.arange(6), np.linspace(1, 0, 6))]),
    "corruption_map": lambda: shift.corruption_map(RANDOM.rand(15, 5), [f"c_{i}" for i in range(15)], "t"),
    "rotation": lambda: shift.against_rotation(SERIES, "accuracy"),
    "snr": lambda: shift.against_snr(SERIES, "accuracy"),
    "lines": lambda: lines(SERIES, "share", "accuracy", percents="xy"),
    "phase": lambda: posterior.phase_transition(np.arange(5), X, Y, Y),
    "kappa": lambda: posterior.kappa_histogram(np.array([3, 0, 9, 1]), np.arange(-2.0, 3.0), 1.5, "t"),
    "kappa_of_zeros": lambda: posterior.kappa_histogram(
        np.array([9, 0, 0, 0]), np.arange(-2.0, 3.0), 1.5, "t"
    ),
    "autocorrelation": lambda: posterior.autocorrelation(np.arange(0, 50, 10), Y, "steps apart"),
    "sampler": lambda: posterior.sampler_diagnostics(
        np.arange(5), {"temperature": Y, "ξ": X}, {"temperature": 1.0}
    ),
    "cost": lambda: posterior.cost_against_draws(
        [("direct", np.array([1, 10]), np.array([1.0, 9.0]))], "memory (MiB)"
    ),
    "predictions": lambda: examples.predictions(
        RANDOM.randint(0, 255, (3, 8, 8, 3)).astype(np.uint8),
        RANDOM.dirichlet(np.ones(5), 3),
        np.array([0, 1, 4]),
    ),
    "saliency": lambda: examples.saliency_maps(
        RANDOM.randint(0, 255, (2, 8, 8, 1)).astype(np.uint8), RANDOM.rand(2, 8, 8), ["cat", "dog"]
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_a_self_contained_part_of_a_page(name: str) -> None:
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    text = svg(figure, "f7", 'a title with "quotes" & <signs>')
    tree = ElementTree.fromstring(text)
    assert tree.get("role") == "img"
    assert tree.get("aria-label") == 'a title with "quotes" & <signs>'
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert all(i.startswith("f7-") for i in ids)
    used = re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)
    assert set(used) <= set(ids)
    assert "#010203" not in text
    assert "var(--ink)" in text
    links = re.findall(r'(?:href|src)="(?!#|data:)([^"]+)"', text)
    assert links == []


def test_the_same_data_give_the_same_text() -> None:
    assert svg(FIGURES["lines"](), "a", "t") == svg(FIGURES["lines"](), "a", "t")
