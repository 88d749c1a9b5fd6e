"""bf.conformal: the exact law of its coverage, files, refusals; and figures of a peer on the same probabilities."""

import copy
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.evaluation.calibrate import Calibrated
from bayesify.evaluation.conformal import fitted, unfitted

SPLITS, N, TEST, COVERAGE = 200, 60, 100, 0.9
RATE = 1e-6  # of failure of each check of a coverage
CLASSES = 4

Data = Callable[[int], tuple[Tensor, Tensor]]


@cache
def bounds(splits: int = SPLITS, n: int = N, test: int = TEST, coverage: float = COVERAGE) -> tuple[int, int]:
    """Between these lies the number of covered targets of all splits together, but for RATE.

    With scores that differ, the coverage of one split is Beta(k, n + 1 − k), k = ⌈(n + 1) coverage⌉, and the number of
    covered test targets beta-binomial; that of independent splits is the sum, whose law is its power under Fourier.
    """
    k = math.ceil((n + 1) * coverage)
    one = np.zeros(splits * test + 1)
    one[: test + 1] = stats.betabinom.pmf(np.arange(test + 1), test, k, n + 1 - k)
    cdf = np.fft.irfft(np.fft.rfft(one) ** splits, len(one)).cumsum()
    return int(np.searchsorted(cdf, RATE / 2)), int(np.searchsorted(cdf, 1 - RATE / 2))


def classes(per_class: int) -> tuple[Tensor, Tensor]:
    """As many examples of every class, around its corner of the plane."""
    y = torch.arange(CLASSES).repeat(per_class)
    corner = torch.stack([y % 2, y // 2], 1).float()
    return corner + 0.7 * torch.randn(len(y), 2), y


def drawn_classes(n: int) -> tuple[Tensor, Tensor]:
    x, y = classes(n)
    chosen = torch.randperm(len(y))[:n]
    return x[chosen], y[chosen]


def numbers(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 2)
    return x, x[:, :1] + 0.5 * torch.randn(n, 1).abs()


def model(outputs: int = CLASSES, likelihood: Any = "categorical", method: Any = None) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Linear(2, outputs)
    with torch.no_grad():
        net.weight.mul_(3)
    return bf.bayesify(net, method or bf.Point(), likelihood, num_data=100)


def inside(m: bf.BayesianModule, x: Tensor, y: Tensor, generator: Any = None) -> Tensor:
    prediction = m.predict(x, generator=generator)
    if m.likelihood.task == "classification":
        return prediction.sets[torch.arange(len(y)), y]
    low, high = prediction.interval
    return ((low <= y) & (y <= high)).flatten()


# -- the guarantee ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("score", "make", "data", "splits"),
    [
        ("lac", model, drawn_classes, SPLITS),
        ("aps", model, drawn_classes, SPLITS),
        ("raps", model, drawn_classes, SPLITS),
        ("absolute", lambda: model(1, "normal"), numbers, SPLITS),
        ("std", lambda: model(2, "heteroscedastic"), numbers, SPLITS),
        ("quantile", lambda: model(2, "heteroscedastic"), numbers, SPLITS),
        ("quantile", lambda: model(1, bf.likelihood("student_t", df=1.5)), numbers, 40),
    ],
)
def test_the_coverage_has_its_exact_law(
    score: str, make: Callable[[], bf.BayesianModule], data: Data, splits: int
) -> None:
    """200 splits of fresh data, of networks that know nothing: the law does not ask."""
    m = make()
    torch.manual_seed(1)
    covered = 0
    for _ in range(splits):
        bf.conformal(m, [data(N)], COVERAGE, score)
        covered += int(inside(m, *data(TEST)).sum())
    low, high = bounds(splits)
    assert low <= covered <= high, (low, covered, high)
    assert (high - low) / (splits * TEST) < 0.08  # the check means something


def test_by_class_the_law_is_that_of_every_class() -> None:
    m = model()
    torch.manual_seed(2)
    covered = torch.zeros(CLASSES)
    for _ in range(SPLITS):
        bf.conformal(m, [classes(N)], COVERAGE, "aps", by_class=True)
        x, y = classes(TEST)
        covered += torch.bincount(y[inside(m, x, y)], minlength=CLASSES)
    low, high = bounds()
    assert ((low <= covered) & (covered <= high)).all(), covered
    assert len(m.conformal.thresholds) == CLASSES  # type: ignore[union-attr]
    bf.conformal(m, [classes(500)], COVERAGE, "lac")
    x, y = classes(500)
    together = torch.bincount(y[inside(m, x, y)], minlength=CLASSES) / 500
    assert together.min() < 0.85  # which one threshold for all does not give


def test_draws_of_weights_keep_the_law() -> None:
    """The same draws for both halves, by generators of one seed: then the score is one function."""
    m = model(method=bf.MonteCarloVI(init_std=0.5))
    torch.manual_seed(3)
    covered = 0
    for seed in range(SPLITS):
        bf.conformal(m, [drawn_classes(N)], COVERAGE, generator=torch.Generator().manual_seed(seed))
        covered += int(inside(m, *drawn_classes(TEST), torch.Generator().manual_seed(seed)).sum())
    low, high = bounds()
    assert low <= covered <= high


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_higher_coverage_never_takes_a_class_away(score: str) -> None:
    m, x = model(), drawn_classes(500)[0]
    smaller = bf.conformal(m, [drawn_classes(200)], 0.8, score).predict(x).sets
    assert m.conformal is not None
    larger = bf.conformal(m, [drawn_classes(200)], 0.99, score).predict(x).sets
    assert (larger >= smaller).all() and larger.sum() > smaller.sum()


# -- peers --------------------------------------------------------------------------------------------------
REFERENCE = json.loads((Path(__file__).parent / "conformal_reference.json").read_text())


@pytest.mark.parametrize(
    "case", REFERENCE["classification"], ids=lambda case: f"{case['peer']}-{case['name']}"
)
def test_thresholds_and_sets_are_those_of_peers(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of benchmarks/conformal_reference.py, on the same probabilities; randomised scores with the peer's u."""
    if "u" in case:
        u = torch.tensor(case["u"], dtype=torch.float64)
        monkeypatch.setattr("bayesify.predict.conformal.uniforms", lambda probs, seed: u[: len(probs)])
    probs = torch.tensor(REFERENCE["probs"], dtype=torch.float64)
    target = torch.tensor(REFERENCE["targets"])
    n = REFERENCE["num_calibration"]
    likelihood = bf.likelihood("categorical")
    whole = replace(model().predict(torch.zeros(len(probs), 2)), mean=probs)
    halves = [replace(whole, mean=part) for part in (probs[:n], probs[n:])]
    rule = unfitted(likelihood, case["score"], case["coverage"], case["by_class"], **case["options"])
    rule = fitted(rule, [(halves[0], target[:n])], case["by_class"])
    assert rule.thresholds == pytest.approx(case["thresholds"], abs=1e-6)
    sets = rule.sets(halves[1])
    assert [row.nonzero().flatten().tolist() for row in sets] == case["sets"]


@pytest.mark.parametrize("case", REFERENCE["regression"], ids=lambda case: f"{case['peer']}-{case['name']}")
def test_intervals_are_those_of_peers(case: dict[str, Any]) -> None:
    mean, std, y = (
        torch.tensor(REFERENCE[key], dtype=torch.float64)[:, None] for key in ("mean", "std", "y")
    )
    n = REFERENCE["num_calibration"]
    base = model(1, "normal").predict(torch.zeros(len(y), 2), keep_samples=True)
    whole = [
        replace(base, mean=m, noise=s**2, spread=0 * s, per_draw=(m[None], s[None] ** 2))
        for m, s in ((mean[:n], std[:n]), (mean[n:], std[n:]))
    ]
    rule = fitted(unfitted(base.likelihood, case["score"], case["coverage"]), [(whole[0], y[:n])])
    assert rule.thresholds == pytest.approx(case["thresholds"], abs=1e-6)
    low, high = rule.interval(whole[1])
    found = torch.cat([low, high], 1)
    torch.testing.assert_close(found, torch.tensor(case["intervals"], dtype=torch.float64), atol=1e-6, rtol=0)


# -- the rule and its model ---------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["mc_vi", "point", "vdp", "emp", "deep_ensemble"])
def test_every_method_has_sets_and_its_file_keeps_them(method: str, tmp_path: Path) -> None:
    m = model(method=method)
    assert bf.conformal(m, [drawn_classes(100)], generator=torch.Generator().manual_seed(0)) is m
    bf.save(m, path := tmp_path / "model.safetensors")
    loaded = bf.load(path, nn.Linear(2, CLASSES))
    x = torch.randn(20, 2)
    mine, its = (each.predict(x, generator=torch.Generator().manual_seed(1)) for each in (m, loaded))
    assert torch.equal(mine.sets, its.sets) and mine.sets.shape == (20, CLASSES)
    assert loaded.conformal == m.conformal
    assert "predictions have conformal sets: score aps, coverage 0.9, 100 examples" in str(loaded.summary())
    assert copy.deepcopy(m).conformal == m.conformal


def test_a_regression_from_a_file(tmp_path: Path) -> None:
    m = model(2, "normal", bf.MonteCarloVI())
    x, y = torch.randn(50, 2), torch.randn(50, 2)
    bf.conformal(m, [(x, y)], score="quantile")
    bf.save(m, path := tmp_path / "model.safetensors")
    loaded = bf.load(path, nn.Linear(2, 2))
    low, high = loaded.predict(x, generator=torch.Generator().manual_seed(1)).interval
    again = m.predict(x, generator=torch.Generator().manual_seed(1))
    assert torch.equal(low, again.interval[0]) and torch.equal(high, again.interval()[1])
    assert low.shape == (50, 2) and (low <= high).all()
    assert torch.equal(again.interval(0.9)[0], again._law.quantile(0.05))  # the law's own, as ever


def test_a_plain_network_is_read_as_a_point() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)).train()
    c = bf.conformal(net, [drawn_classes(100)], score="lac")
    assert c.method.name == "point" and net.training and c.net is net
    assert c.predict(torch.randn(5, 2)).sets.shape == (5, CLASSES)
    line = bf.conformal(nn.Linear(2, 1), [numbers(100)], likelihood="normal")
    low, high = line.predict(torch.randn(5, 2)).interval
    assert torch.allclose(high - low, (high - low)[0].expand(5, 1))
    with pytest.raises(
        ValueError, match=r"likelihood='normal' is for a plain network: this model has its own"
    ):
        bf.conformal(line, [numbers(100)], likelihood="normal")


def test_a_loader_gives_the_sets_of_its_batches() -> None:
    m = bf.conformal(model(), [drawn_classes(50), drawn_classes(51)])
    x = torch.randn(30, 2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=7)
    assert torch.equal(m.predict(loader).sets, m.predict(x).sets)
    assert m.conformal is not None and m.conformal.num_data == 101


def test_binary_labels_are_two_classes() -> None:
    m = model(1, "bernoulli")
    x, y = torch.randn(200, 2), torch.randint(2, (200, 1))
    sets = bf.conformal(m, [(x, y)]).predict(x).sets
    assert sets.shape == (200, 2)
    assert (
        sets.gather(1, y).double().mean() >= 0.9
    )  # of the very examples it was fitted to: ⌈201 · 0.9⌉ of 200


def test_what_changes_predictions_drops_the_rule() -> None:
    m, data = model(), [drawn_classes(100)]
    bf.conformal(m, data)
    assert Calibrated(m, 2.0).predict(data[0][0]).conformal is None
    bf.calibrate(m, data)
    assert m.conformal is None
    bf.conformal(m, data)
    assert m.predict(data[0][0]).conformal == m.conformal  # of calibrated predictions
    bf.calibrate(m, None)
    assert m.conformal is None
    bf.conformal(m, data)
    bf.fit(m, data, epochs=1, lr=1e-3, progress=False)
    assert m.conformal is None
    bf.conformal(m, data)
    assert bf.conformal(m, None).conformal is None


def test_weights_that_move_on_in_a_loop_of_ones_own_are_told(recwarn: Any) -> None:
    m, data = model(), [drawn_classes(100)]
    for fit in (bf.calibrate, bf.conformal):
        fit(m, data)
        m.predict(data[0][0])
        assert not recwarn.list
        with torch.no_grad():
            next(m.parameters()).mul_(1.1)
        with pytest.warns(UserWarning, match="weights were changed after bf.calibrate or bf.conformal"):
            m.predict(data[0][0])
        recwarn.clear()
        copy.deepcopy(m).predict(data[0][0])
        fit(m, data)
        m.predict(data[0][0])
        assert not recwarn.list


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_frozen_predictor_is_a_model_here(task: str) -> None:
    """Metrics, calibration, rules and acquisition are those of a model that predicts by the same draws."""
    law, data = (CLASSES, [drawn_classes(100)]) if task == "classification" else (1, [numbers(100)])
    whole = model(law, "categorical" if law == CLASSES else "normal", bf.MonteCarloVI())
    frozen = whole.freeze(5, torch.Generator().manual_seed(0))
    seeded = {"num_draws": 5, "generator": torch.Generator().manual_seed(0)}
    assert bf.evaluate(frozen, data) == pytest.approx(bf.evaluate(whole, data, **seeded), rel=1e-4)
    bf.calibrate(frozen, data)
    score = "quantile" if law == 1 else None
    assert bf.conformal(frozen, data, score=score) is frozen
    found = frozen.predict(data[0][0])
    if law == CLASSES:
        inside = found.sets.gather(1, data[0][1][:, None])
    else:
        low, high = found.interval
        inside = (low <= data[0][1]) & (data[0][1] <= high)
    assert inside.double().mean() >= 0.9
    assert len(bf.acquisition(frozen, data[0][0], "variance", k=3).indices) == 3
    whole.conformal = frozen.conformal
    assert whole.freeze(5).conformal is None  # other draws
    with pytest.raises(ValueError, match="augment= is of a model, and a frozen predictor has fixed draws"):
        bf.evaluate(frozen, data, augment=torch.neg)


def test_a_fit_that_fails_leaves_the_rule() -> None:
    m = bf.conformal(model(), [drawn_classes(100)])
    before = m.conformal
    with pytest.raises(ValueError, match="calibration_loader has no target that counts"):
        bf.conformal(m, [])
    assert m.conformal == before


# -- few examples -------------------------------------------------------------------------------------------
def test_too_few_examples_give_everything_and_say_so() -> None:
    m, (x, y) = model(), drawn_classes(8)
    with pytest.warns(
        UserWarning, match=r"coverage=0.9 needs at least 9 calibration examples, not 8: sets hold every"
    ):
        assert bf.conformal(m, [(x, y)]).predict(x).sets.all()
    line, data = model(1, "normal"), numbers(18)
    with pytest.warns(UserWarning, match=r"needs at least 19 .* not 18: intervals are infinite"):
        low, high = bf.conformal(line, [data], 0.95).predict(data[0]).interval
    assert (low == -math.inf).all() and (high == math.inf).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bf.conformal(line, [numbers(19)], 0.95).predict(data[0]).interval[0].isfinite().all()


def test_a_class_with_too_few_examples_is_in_every_set(tmp_path: Path) -> None:
    m, (x, y) = model(), classes(40)
    few = (y != 2) | (torch.arange(len(y)) < 20)
    with pytest.warns(
        UserWarning, match=r"each class needs 9 .* classes 2 have fewer, and are in every set: give more"
    ):
        bf.conformal(m, [(x[few], y[few])], by_class=True)
    sets = m.predict(x).sets
    assert sets[:, 2].all() and not sets.all()
    bf.save(m, path := tmp_path / "model.safetensors")
    assert torch.equal(bf.load(path, nn.Linear(2, CLASSES)).predict(x).sets, sets)


# -- refusals -----------------------------------------------------------------------------------------------
def test_what_is_refused() -> None:
    m, line, data = model(), model(1, "normal"), [drawn_classes(50)]
    with pytest.raises(
        ValueError, match=r"score of a classification='abs' does not exist; choose from aps, lac, raps"
    ):
        bf.conformal(m, data, score="abs")
    with pytest.raises(ValueError, match=r"score of a regression='aps' .* absolute, quantile, std"):
        bf.conformal(line, [numbers(50)], score="aps")
    with pytest.raises(ValueError, match=r"by_class=True is for classification"):
        bf.conformal(line, [numbers(50)], by_class=True)
    with pytest.raises(ValueError, match=r"coverage=1.0 must be a number between 0 and 1"):
        bf.conformal(m, data, 1.0)
    with pytest.raises(TypeError, match=r"calibration_loader=3 must give batches"):
        bf.conformal(m, 3)  # type: ignore[arg-type]
    several = model(3, "bernoulli")
    with pytest.raises(ValueError, match=r"one class of each example: .* shape \(50, 3\), of several labels"):
        bf.conformal(several, [(torch.randn(50, 2), torch.randint(2, (50, 3)))])
    tokens = bf.bayesify(nn.Linear(2, 3), bf.Point(), bf.likelihood("categorical", class_dim=-1))
    with pytest.raises(ValueError, match=r"several labels or positions \(multi-label, segmentation\)"):
        bf.conformal(tokens, [(torch.randn(9, 5, 2), torch.randint(3, (9, 5)))])
    dense = bf.bayesify(nn.Linear(2, 1), bf.Point(), bf.likelihood("normal", std=1.0))
    with pytest.raises(ValueError, match=r"one number, or a row of numbers, .* shape \(9, 5, 1\)"):
        bf.conformal(dense, [(torch.randn(9, 5, 2), torch.randn(9, 5, 1))])
    heavy = model(1, bf.likelihood("student_t", df=1.5))
    with pytest.raises(ValueError, match=r"score='std' is not finite for 50 of 50 .* use score='quantile'"):
        bf.conformal(heavy, [numbers(50)])


def test_sets_without_a_rule_and_of_other_draws() -> None:
    m, line, x = model(method=bf.MonteCarloVI()), model(1, "normal"), torch.randn(5, 2)
    with pytest.raises(
        AttributeError, match=r"\.sets needs a conformal rule.*call bf.conformal\(model, calibration_l"
    ):
        _ = m.predict(x).sets
    with pytest.raises(
        AttributeError, match=r"\.interval needs a conformal rule.*\.interval\(0\.9\) is the central"
    ):
        _, _ = line.predict(x).interval
    with pytest.raises(
        AttributeError, match=r"\.sets is for classification; this is regression: use \.interval"
    ):
        _ = line.predict(x).sets
    with pytest.raises(
        AttributeError, match=r"\.interval is for regression; this is classification: use \.sets"
    ):
        _, _ = m.predict(x).interval
    bf.conformal(m, [drawn_classes(50)])
    with pytest.raises(
        ValueError, match=r"num_draws=20, this one has 7: predict with as many, or call .*num_draws=7"
    ):
        _ = m.predict(x, num_draws=7).sets
    assert bf.conformal(m, [drawn_classes(50)], num_draws=7).predict(x, num_draws=7).sets.shape == (
        5,
        CLASSES,
    )
    assert m.predict(x, num_draws=7, keep_samples=True).interval()[0].shape == (5, CLASSES)
    m.conformal = replace(m.conformal, thresholds=[0.5, 0.5])  # type: ignore[type-var]
    with pytest.raises(
        ValueError, match=r"the conformal rule has 2 thresholds, 4 classes or numbers are predicted"
    ):
        _ = m.predict(x, num_draws=7).sets
    m.conformal = replace(m.conformal, score="std")
    with pytest.raises(ValueError, match=r"score 'std', which is not for this prediction"):
        _ = m.predict(x, num_draws=7).sets


def test_an_answer_of_nan_may_be_any_class() -> None:
    m, x = bf.conformal(model(), [drawn_classes(50)]), torch.randn(5, 2)
    x[2] = math.nan
    assert m.predict(x, on_nonfinite="nan").sets[2].all()
