"""Predictive laws of regressions that are not normal: units, batches, precision, crps."""

import numpy as np
import pytest
import torch
from predictive_cases import predictive
from scipy import stats

import bayesify as bf
from bayesify.evaluation import metrics
from bayesify.predict.predictive import concatenate

LOCS = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(0))  # (draws, batch, outputs)
TARGET = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))


def mixture(keep: bool = False) -> bf.Predictive:
    return predictive(bf.likelihood("student_t", df=3.0, scale=0.4, learn_scale=False), list(LOCS), keep)


def test_a_moved_law_is_that_of_the_moved_target() -> None:
    law = mixture().law
    assert law is not None
    shift, scale = torch.tensor([1.0, -2.0]).expand(4, 2), torch.tensor([3.0, 0.5]).expand(4, 2)
    moved = law.moved(shift, scale)
    expected = law.log_prob(TARGET) - scale.log().sum(1)
    torch.testing.assert_close(moved.log_prob(shift + scale * TARGET), expected)
    torch.testing.assert_close(moved.cdf(shift + scale * TARGET), law.cdf(TARGET))
    torch.testing.assert_close(moved.quantile(0.3), shift + scale * law.quantile(0.3))
    twice = moved.moved(-shift / scale, 1 / scale)
    torch.testing.assert_close(twice.log_prob(TARGET), law.log_prob(TARGET))


def test_batches_join() -> None:
    whole = mixture(keep=True)
    halves = [
        predictive(bf.likelihood("student_t", df=3.0, scale=0.4), [z[part] for z in LOCS], True)
        for part in (slice(0, 1), slice(1, 4))
    ]
    joined = concatenate(halves)
    torch.testing.assert_close(joined.log_prob(TARGET), whole.log_prob(TARGET))
    torch.testing.assert_close(joined.interval()[0], whole.interval()[0])


def test_distribution_function_is_that_of_the_mixture() -> None:
    law = stats.t(3.0, LOCS.double().numpy(), 0.4)
    np.testing.assert_allclose(
        mixture().cdf(TARGET).numpy(), law.cdf(TARGET.double().numpy()).mean(0), atol=1e-7
    )


def test_normal_levels_are_those_of_the_metrics() -> None:
    pred = predictive(bf.likelihood("normal", std=0.4), list(LOCS), True)
    assert pred.per_draw is not None
    assert torch.equal(pred.level(TARGET), metrics.quantile_levels(*pred.per_draw, TARGET))


def test_classes_have_no_distribution_function() -> None:
    pred = predictive(bf.likelihood("categorical"), list(LOCS))
    for name in ("cdf", "level"):
        with pytest.raises(AttributeError, match=rf"\.{name} is for regression"):
            getattr(pred, name)(TARGET)


@pytest.mark.parametrize("far", [0.0, 1.0, 30.0])
def test_crps_by_the_distribution_function_is_the_closed_form_of_normals(far: float) -> None:
    pred = predictive(bf.likelihood("normal", std=0.4), list(LOCS), True)
    law = pred._law.double()
    found = metrics.crps_of(law.cdf, law.quantile, TARGET + far)
    assert pred.per_draw is not None
    torch.testing.assert_close(found, metrics.crps_each(*pred.per_draw, TARGET + far), rtol=1e-3, atol=0)


def test_crps_of_counts_is_the_sum_of_its_definition() -> None:
    log_rates = torch.tensor([[0.0, 3.0], [0.5, 4.0]]).double()[:, None]  # (draws, batch, outputs)
    pred = predictive(bf.likelihood("poisson"), list(log_rates))
    target = torch.tensor([[3.0, 40.0]])
    assert pred.law is not None
    found = metrics.crps_of(pred.law.cdf, pred.law.quantile, target, whole=True)
    k = np.arange(1000)
    for i in range(2):
        cdf = stats.poisson.cdf(k[:, None], log_rates[:, 0, i].exp().numpy()).mean(1)
        expected = np.square(cdf - (k >= float(target[0, i]))).sum()
        assert float(found[0, i]) == pytest.approx(expected, rel=1e-3)
