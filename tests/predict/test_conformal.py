"""The parts of a conformal rule by hand: thresholds, scores, the random share, units."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from predictive_cases import predictive
from scipy import stats
from torch import Tensor

import bayesify as bf
from bayesify.predict.conformal import ConformalRule, fewest, threshold, uniforms

PROBS = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def rule(score: str, *thresholds: float | None, **options: Any) -> ConformalRule:
    return ConformalRule(score, options.pop("coverage", 0.9), list(thresholds), 1, 10, **options)


def classes(probs: Tensor) -> bf.Predictive:
    return predictive(bf.likelihood("categorical"), [probs.log()])


@pytest.mark.parametrize("coverage", ["0.9", "0.95", "0.55", "0.07", "0.3", "0.999"])
def test_the_place_of_the_threshold_is_exact(coverage: str) -> None:
    for n in range(1, 200):
        place = math.ceil((n + 1) * Fraction(coverage))
        found = threshold(torch.randperm(n) + 1.0, float(coverage))
        assert found == (place if place <= n else None)
        assert (found is None) == (n < fewest(float(coverage)))


def test_scores_of_classes_by_hand() -> None:
    p = classes(PROBS)

    def scores(made: ConformalRule) -> Tensor:
        return made.class_scores(p).float()

    torch.testing.assert_close(scores(rule("lac")), 1 - PROBS)
    whole = torch.tensor([[1.0, 0.5, 0.8], [0.9, 1.0, 0.8]])  # of equal classes the first comes first
    torch.testing.assert_close(scores(rule("aps", seed=None)), whole)
    u = uniforms(p.mean, 7)[:, None].float()
    torch.testing.assert_close(scores(rule("aps", seed=7)), whole - (1 - u) * PROBS)
    behind = torch.tensor([[2.0, 0, 1], [1, 2, 0]])
    made = rule("raps", seed=None, penalty=0.1, num_free=1)
    torch.testing.assert_close(scores(made), whole + 0.1 * behind)


def test_the_random_share_is_uniform_and_follows_from_the_row() -> None:
    """20,000 rows, Kolmogorov's statistic at a failure rate of 1e-6; and its correlation with what is in the rows."""
    probs = torch.randn(20_000, 5, generator=torch.Generator().manual_seed(0)).softmax(1).double()
    u = uniforms(probs, 0)
    assert torch.equal(u[7:9], uniforms(probs[7:9], 0))  # in any batch
    assert not torch.equal(u, uniforms(probs, 1))
    assert u.min() > 0 and u.max() < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-6
    limit = stats.norm.isf(0.5e-6 / 6) / math.sqrt(len(u))
    for values in (*probs.unbind(1), u.roll(1)):
        assert abs(stats.pearsonr(u.numpy(), values.numpy()).statistic) < limit


def test_rows_that_saturate_still_differ() -> None:
    """Softmax of a gap of 30: the largest is exactly 1, the others are not the same."""
    logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    probs = (logits + torch.tensor([30.0, 0, 0])).softmax(1)
    assert (probs[:, 0] == 1).all()
    assert len(uniforms(probs.double(), 0).unique()) == 1000


def numbers(mean: float, std: float, keep: bool = False) -> bf.Predictive:
    return predictive(bf.likelihood("normal", std=std), [torch.tensor([[mean]])], keep)


def test_intervals_by_hand() -> None:
    p = numbers(1.0, 2.0, keep=True)
    z = stats.norm.ppf(0.95)
    for score, q, half in (("absolute", 0.5, 0.5), ("std", 0.5, 1.0), ("quantile", 0.5, 2 * z + 0.5)):
        low, high = rule(score, q).interval(p)
        assert low.item() == pytest.approx(1 - half, rel=1e-5)
        assert high.item() == pytest.approx(1 + half, rel=1e-5)
    low, high = rule("quantile", -9.0).interval(p)  # would cross
    assert low.item() == high.item() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="interval needs the draws"):
        rule("quantile", 0.5).interval(numbers(1.0, 2.0))


def test_other_units() -> None:
    assert rule("absolute", 0.5, None).scaled(torch.tensor([2.0, 3.0])).thresholds == [1.0, None]
    assert rule("quantile", 0.5).scaled(torch.tensor(4.0)).thresholds == [2.0]
    assert rule("std", 0.5).scaled(torch.tensor(4.0)).thresholds == [0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "abs"}, r"score='abs' does not exist"),
        ({"coverage": 2.0}, r"coverage=2.0 must be a number between 0 and 1"),
        ({"thresholds": [math.nan]}, r"thresholds=\[nan\] must be a list"),
        ({"seed": 2**63}, r"seed=9223372036854775808 must be a whole number"),
    ],
)
def test_a_rule_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConformalRule(
            **{"score": "aps", "coverage": 0.9, "thresholds": [0.5], "num_draws": 1, "num_data": 1} | options
        )
