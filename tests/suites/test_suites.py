"""Every suite on a small model of digits: numbers, arrays, storage, and what does not fit."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify import metrics
from bayesify.corruptions import COMMON, corrupt, rotate
from bayesify.data import load
from bayesify.data.loader import derived_seed
from bayesify.suites import (
    SUITES,
    Evaluation,
    Outcome,
    Subject,
    read_evaluation,
    run_suites,
    write_evaluation,
)

DIGITS = load("digits").with_validation(0.1)


def trained(method: bf.DeepEnsemble | bf.Point | bf.MonteCarloVI, steps: int = 60) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    model = bf.bayesify(net, method, num_data=len(DIGITS.train))
    x, y = DIGITS.normalisation.inputs(DIGITS.train.inputs), DIGITS.train.targets
    optimizer = model.optimizer(lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def subject() -> Subject:
    few = replace(DIGITS, test=DIGITS.test.take(torch.arange(60)))
    model = trained(bf.MonteCarloVI(init_std=0.05))
    return Subject(model, few.test, few.normalisation, few.val, num_draws=4, num_few=12)


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_gives_finite_numbers_the_same_twice(name: str, subject: Subject) -> None:
    first, again = (run_suites(subject, [name])[name] for _ in range(2))
    assert first.metrics
    assert all(math.isfinite(value) for value in first.metrics.values()), first.metrics
    assert first.metrics == again.metrics
    assert all(isinstance(array, np.ndarray) for array in first.arrays.values())
    assert SUITES[name].__doc__


def test_calibration_is_evaluate_and_more(subject: Subject) -> None:
    outcome = SUITES["calibration"](subject)
    whole = bf.evaluate(
        subject.model, subject.batches(subject.test), 4, generator=torch.Generator().manual_seed(0)
    )
    for key, value in whole.items():
        assert outcome.metrics[key] == pytest.approx(value), key
    a = outcome.arrays
    assert a["bin_size"].sum() == 60
    assert a["each_accuracy"].mean() == pytest.approx(whole["accuracy"])
    assert a["each_nll"].mean() == pytest.approx(whole["nll"], rel=1e-5)
    assert a["uncertain_images"].shape == (8, 8, 8, 1)
    assert a["uncertain_probs"].shape == (8, 10)
    entropies = a["each_entropy"][a["uncertain_index"]]
    assert (np.diff(entropies) <= 0).all()
    assert entropies[0] == a["each_entropy"].max()
    if "wrong_index" in a:
        assert (a["each_accuracy"][a["wrong_index"]] == 0).all()
    assert outcome.metrics["tempered/nll"] > 0
    assert {"ece_20bins", "mce_20bins", "ece_8bins", "num_bins"} <= set(outcome.metrics)
    without = SUITES["calibration"](replace(subject, val=None))
    assert "temperature" not in without.metrics


def test_ood_of_named_sets_and_of_noise(subject: Subject) -> None:
    outcome = SUITES["ood"](replace(subject, ood={"flat": torch.full((20, 1, 8, 8), 0.5)}))
    assert {"flat/auroc", "flat/aupr", "flat/fpr95", "flat/auroc_mutual_information"} <= set(outcome.metrics)
    assert outcome.arrays["outside_flat"].sum() == pytest.approx(1, rel=1e-5)
    assert outcome.arrays["inside"].sum() == pytest.approx(1, rel=1e-5)
    assert "noise/auroc" in SUITES["ood"](subject).metrics


def test_corruption_by_hand(subject: Subject) -> None:
    outcome = SUITES["corruption"](subject)
    assert outcome.arrays["accuracy"].shape == (15, 5)
    x = subject.test.inputs.clamp(0, 1)
    c = COMMON.index("contrast")
    generator = torch.Generator().manual_seed(derived_seed(0, 0, c, 5))
    changed = subject.from_images(corrupt(x, "contrast", 5, generator))
    accuracy = float(metrics.accuracy(subject.model.predict(changed, 50).probs, subject.test.targets))
    assert outcome.arrays["accuracy"][c, 4] == pytest.approx(accuracy, abs=0.06)  # four draws against fifty
    assert outcome.metrics["corrupted/accuracy"] == pytest.approx(outcome.arrays["accuracy"].mean())


def test_corrupted_images_are_kept_when_asked(subject: Subject) -> None:
    memory: dict[object, torch.Tensor] = {}
    first = SUITES["corruption"](replace(subject, memory=memory))
    assert len(memory) == 75
    assert SUITES["corruption"](replace(subject, memory=memory)).metrics == first.metrics
    assert SUITES["corruption"](subject).metrics == first.metrics


def test_rotation_by_hand(subject: Subject) -> None:
    sure = replace(subject, model=trained(bf.Point()))
    outcome = SUITES["shift"](sure)
    x = sure.from_images(rotate(sure.test.inputs.clamp(0, 1), 30))
    accuracy = float(metrics.accuracy(sure.model.predict(x).probs, sure.test.targets))
    assert outcome.metrics["rotated_30/accuracy"] == pytest.approx(accuracy)
    assert outcome.arrays["rotated_accuracy"][0] > outcome.arrays["rotated_accuracy"][5]


def test_attacks_lower_the_accuracy(subject: Subject) -> None:
    arrays = SUITES["adversarial"](subject).arrays
    assert arrays["pgd_accuracy"][-1] <= arrays["pgd_accuracy"][0]
    assert arrays["pgd_accuracy"][-1] <= arrays["fgsm_accuracy"][-1] + 0.1


def test_pruning_that_does_not_reach_the_members_is_refused(subject: Subject) -> None:
    ensemble = trained(bf.DeepEnsemble(bf.Point(), 3), steps=5)
    with pytest.raises(ValueError, match="weights of its own for every member"):
        SUITES["compression"](replace(subject, model=ensemble))


def test_regression() -> None:
    ds = load("diabetes")
    model = bf.bayesify(nn.Linear(10, 1), bf.Point(), bf.likelihood("normal", std=0.7))
    plain = replace(ds.normalisation, target_mean=None, target_std=None)
    subject = Subject(model, ds.test, plain)
    outcome = SUITES["calibration"](subject)
    assert outcome.metrics["rmse"] > 0
    assert len(outcome.arrays["mean"]) == len(ds.test)
    assert "input" not in outcome.arrays
    with pytest.raises(ValueError, match="suite 'ood' is for classification"):
        SUITES["ood"](subject)


def test_images_are_asked_for() -> None:
    ds = load("wine")
    model = bf.bayesify(nn.Linear(13, 3), bf.Point())
    subject = Subject(model, ds.test, ds.normalisation)
    with pytest.raises(ValueError, match=r"suite 'corruption' takes images .* shape \(13,\)"):
        SUITES["corruption"](subject)
    assert run_suites(subject, ["calibration", "ood", "saliency", "adversarial"])


# -- storage ------------------------------------------------------------------------------------------------
def test_evaluations_are_stored_and_joined(tmp_path: Path) -> None:
    assert read_evaluation(tmp_path) is None
    first = Outcome({"ece": 0.1, "odd": math.nan}, {"curve": np.arange(3.0)})
    write_evaluation(tmp_path, {"num_draws": 4}, {"calibration": first})
    write_evaluation(tmp_path, {"num_draws": 4}, {"ood": Outcome({"noise/auroc": 0.9})})
    found = read_evaluation(tmp_path)
    assert isinstance(found, Evaluation)
    assert found.metric("calibration", "ece") == 0.1
    assert math.isnan(found.metric("calibration", "odd") or 0)
    assert found.metric("ood", "noise/auroc") == 0.9
    assert found.metric("shift", "ece") is None
    assert found.array("calibration", "curve").tolist() == [0, 1, 2]
    write_evaluation(tmp_path, {"num_draws": 9}, {"ood": Outcome({"noise/auroc": 0.8})})
    assert read_evaluation(tmp_path).metric("calibration", "ece") is None  # of other draws


def test_a_damaged_evaluation_is_named(tmp_path: Path) -> None:
    write_evaluation(tmp_path, {}, {"ood": Outcome({"noise/auroc": 0.9})})
    (tmp_path / "evaluation.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"evaluation\.json is damaged"):
        read_evaluation(tmp_path)


def test_an_unknown_suite_names_the_nearest(subject: Subject) -> None:
    with pytest.raises(ValueError, match="Did you mean 'corruption'"):
        run_suites(subject, ["corruptions"])
