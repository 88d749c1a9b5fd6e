"""What the looks at a sampler mean: shares of weights, chance, and words."""

import pytest
from scipy.stats import chi2, norm

from bayesify.samplers.findings import Seen, chance, findings

RIGHT = Seen("w", 1000, kinetic=1.0, independent=500.0)


def test_chance_is_the_quantile_of_a_mean_of_squares() -> None:
    """Wilson and Hilferty's approximation is good to 4 % or 0.02 from ten values on."""
    for size in (10, 50, 1000):
        for sigmas in (-4.0, -2.0, 2.0, 4.0):
            expected = chi2.ppf(norm.cdf(sigmas), size) / size
            assert chance(size, sigmas) == pytest.approx(expected, rel=0.04, abs=0.02)
    assert chance(0.5, 4.0) == float("inf") and chance(0.5, -4.0) == 0


def test_nothing_is_said_of_what_is_right_or_seldom() -> None:
    assert findings([RIGHT], True) == {}
    assert findings([RIGHT._replace(stuck=9, wait=100.0)], True) == {}
    assert findings([RIGHT._replace(noisy=99, noise=3.0)], True) == {}
    assert findings([RIGHT._replace(kinetic=1.6, independent=20.0)], True) == {}  # chance
    assert findings([RIGHT._replace(kinetic=0.25, independent=20.0)], True) == {}


def test_words() -> None:
    rows = [
        RIGHT._replace(name=name, stuck=count, wait=1234.0)
        for name, count in (("a", 5), ("b", 50), ("c", 1), ("d", 7))
    ]
    text = findings(rows, True)["stuck"]
    assert text.startswith("the thermostats of 63 of 4,000 weights (b 50, d 7, a 5, …) stand far above")
    assert "some 1,234 steps" in text
    hot, cold = RIGHT._replace(kinetic=2.5), RIGHT._replace(kinetic=0.1)
    assert "1,000 weights is not 1 (2.5 in w)" in findings([RIGHT, hot], True)["hot"]
    assert "a thermostat (sampler='atmc')" in findings([hot], False)["hot"]
    assert findings([cold], True)["cold"].endswith("or raise thermostat_rate")
    assert findings([cold], False)["cold"].endswith("Lengthen the burn-in")
    assert findings([hot, cold], True, stationary=False) == {}
    noisy = RIGHT._replace(noisy=500, noise=1.5)
    assert "is 1.5 times D in 500 of 1,000 weights (w 500)" in findings([noisy], True)["noisy"]
    assert "some 150% too large" in findings([noisy], False)["noisy"]
    slow = findings([RIGHT._replace(slow=70, round=2e4)], True)["slow"]
    assert slow.startswith("70 of 1,000 weights (w 70) hardly move: they need 20,000 steps to forget")
    assert slow.endswith("Keep draws of 100,000 steps")
    assert findings([RIGHT._replace(slow=9, round=2e4)], True) == {}
