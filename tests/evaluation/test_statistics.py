"""Statistics over runs, against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from bayesify.evaluation.statistics import anova, holm, mean, paired_t_test, spearman

A, B, C = (np.random.RandomState(s).randn(8) + s / 2 for s in range(3))


def test_mean_and_standard_error() -> None:
    found = mean(A)
    assert found.value == pytest.approx(A.mean())
    assert found.error == pytest.approx(stats.sem(A))
    assert found.num_runs == 8
    assert "(8 runs)" in str(found)
    assert str(mean([0.5])) == "0.5 (1 run)"
    assert math.isnan(mean([0.5]).error)
    assert str(mean([1.0, 1.0])) == "1 ± 0 (2 runs)"


def test_paired_t_test_equals_scipy() -> None:
    found, expected = paired_t_test(A, B), stats.ttest_rel(A, B)
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.num_runs == 8
    assert paired_t_test(A, A).p == 1
    assert paired_t_test([1, 2], [2, 3]).p == 0


def test_anova_equals_scipy() -> None:
    found, expected = anova(A, B, C), stats.f_oneway(A, B, C)
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.num_runs == 24


def test_spearman_equals_scipy() -> None:
    found, expected = spearman(A, B), stats.spearmanr(A, B)
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert spearman([1, 2, 3], [10, 20, 15]).statistic == pytest.approx(0.5)


def test_holm_by_hand() -> None:
    """Sorted 0.01·3, max(0.03, 0.02·2), max(0.04, 0.04·1)."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="pairs are needed"):
        paired_t_test(A, B[:5])
    with pytest.raises(ValueError, match="give at least 2 numbers"):
        paired_t_test([1.0], [2.0])
    with pytest.raises(ValueError, match="holds NaN"):
        mean([1.0, math.nan])
    with pytest.raises(ValueError, match="compares at least two"):
        anova(A)
