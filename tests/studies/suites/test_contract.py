"""Every suite on a small model of digits: numbers, arrays, storage, and what does not fit."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.cli.units import OriginalUnits
from bayesify.data import load
from bayesify.data.loader import derived_seed
from bayesify.evaluation import metrics
from bayesify.methods import Method
from bayesify.studies.corruptions import COMMON, corrupt, rotate
from bayesify.studies.suites import (
    SUITES,
    Evaluation,
    Outcome,
    Subject,
    Unsuitable,
    read_evaluation,
    run_suites,
    write_evaluation,
)

DIGITS = load("digits").with_validation(0.1)


def trained(method: Method, steps: int = 60) -> bf.BayesianModule:
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


@pytest.fixture(scope="module")
def of_method(subject: Subject) -> dict[str, Subject]:
    """Subjects for the suites that are for one method each."""
    variance = trained(bf.VarianceNetwork(), 30)
    chain = trained(bf.ThermostatMCMC(burn_in=20, every=3), 60)
    return {"variance": replace(subject, model=variance), "chain": replace(subject, model=chain)}


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_gives_finite_numbers_the_same_twice(
    name: str, subject: Subject, of_method: dict[str, Subject]
) -> None:
    subject = of_method.get(name, subject)
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


def test_conformal_by_hand(subject: Subject) -> None:
    """The same model, conformal on the validation part: the sets of the test part, and of its contrast."""
    sure = replace(subject, model=trained(bf.Point()))
    outcome = SUITES["conformal"](sure)
    assert sure.val is not None and sure.module.conformal is None
    x, y = sure.normalised(sure.test.inputs), sure.test.targets
    for score in ("aps", "lac"):
        sets = bf.conformal(sure.model, sure.batches(sure.val), 0.9, score).predict(x).sets
        covered = float(sets[torch.arange(len(y)), y].double().mean())
        assert outcome.metrics[f"{score}_0.9/covered"] == pytest.approx(covered)
        assert outcome.metrics[f"{score}_0.9/set_size"] == pytest.approx(float(sets.double().sum(1).mean()))
    turned = sure.from_images(rotate(sure.test.inputs.clamp(0, 1), 30))
    sets = bf.conformal(sure.model, sure.batches(sure.val)).predict(turned).sets
    covered = float(sets[torch.arange(len(y)), y].double().mean())
    assert outcome.metrics["rotated_30/covered"] == pytest.approx(covered)
    assert outcome.arrays["aps_covered"].tolist() == [
        outcome.metrics[f"aps_{c:g}/covered"] for c in (0.8, 0.9, 0.95)
    ]
    with pytest.raises(
        Unsuitable, match="suite 'conformal' calibrates on validation data: train with --val-fraction"
    ):
        SUITES["conformal"](replace(subject, val=None))
    labels = bf.bayesify(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), bf.Point(), "bernoulli")
    several = replace(sure.val, targets=torch.zeros(len(sure.val), 3))
    with pytest.raises(
        Unsuitable, match="suite 'conformal': conformal sets are for one class of each example"
    ):
        SUITES["conformal"](replace(subject, model=labels, val=several, test=several))


def test_conformal_intervals_in_the_units_of_the_target() -> None:
    """OriginalUnits of a rule, and a rule of OriginalUnits, are one."""
    ds = load("diabetes").with_validation(0.2)
    model = bf.bayesify(nn.Linear(10, 2), bf.MonteCarloVI(), "heteroscedastic")
    subject = Subject(OriginalUnits(model, ds.normalisation), ds.test, ds.normalisation, ds.val)
    outcome = SUITES["conformal"](subject)
    for score in ("std", "absolute", "quantile"):
        bf.conformal(model, subject.batches(ds.val), 0.9, score, generator=subject.generator())  # type: ignore[arg-type]
        x = subject.normalised(torch.as_tensor(ds.test.inputs[:]))
        low, high = subject.predict(x).interval
        y = ds.test.targets.reshape(low.shape)
        assert outcome.metrics[f"{score}_0.9/covered"] == pytest.approx(
            float(((low <= y) & (y <= high)).double().mean())
        )
        assert outcome.metrics[f"{score}_0.9/interval_width"] == pytest.approx(
            float((high - low).double().mean()), rel=1e-3
        )


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
    with pytest.raises(ValueError, match="method 'deep_ensemble' has several"):
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
    with pytest.raises(ValueError, match=r"evaluation\.npz: not a readable npz file"):
        read_evaluation(tmp_path)


def test_the_guide_lists_every_suite() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide[guide.index("| suite |") :].split("\n\n")[0].splitlines()[2:]
    assert [line.split("`")[1] for line in table] == list(SUITES)


def test_an_unknown_suite_names_the_nearest(subject: Subject) -> None:
    with pytest.raises(ValueError, match="Did you mean 'corruption'"):
        run_suites(subject, ["corruptions"])


# -- suites for one method ----------------------------------------------------------------------------------
def test_kl_of_normals_against_torch(subject: Subject) -> None:
    """The KL is torch's; the error is that of M independent draws, and only the direct graph grows with them."""
    outcome = SUITES["kl"](subject)
    a = outcome.arrays
    assert str(a["tensor"]) == "1.weight"  # 64 × 24, the largest
    q = subject.module.posterior.distributions(["1.weight"])["1.weight"]
    mine, prior = torch.distributions.Normal(q.mean, q.variance.sqrt()), torch.distributions.Normal(0, 1)
    true = float(torch.distributions.kl_divergence(mine, prior).double().sum().detach())
    assert outcome.metrics["kl_value"] == pytest.approx(true, rel=1e-5)
    # std of log q − log p = −½ε² + ½(μ + σε)² + const of one draw; mean |normal| = std √(2/π)
    mean, std = mine.mean.detach().double(), mine.stddev.detach().double()
    variance = (0.5 * (1 - std.square()).square() + (mean * std).square()).sum()
    expected = math.sqrt(2 * float(variance) / math.pi / 100)
    # 20 estimates: the mean of |normal| has a relative std of 0.17; 5 of them, failure rate 6e-7
    assert outcome.metrics["direct/kl_error"] == pytest.approx(expected, rel=0.85)
    slope = np.polyfit(np.log(a["direct_draws"]), np.log(a["direct_error"]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.2)
    assert a["direct_stored"][4] > 50 * a["direct_stored"][0]
    assert (a["repar_stored"] == a["repar_stored"][0]).all()
    assert (a["repar_seconds"] > 0).all()


def test_variance_by_hand(of_method: dict[str, Subject]) -> None:
    subject = of_method["variance"]
    outcome = SUITES["variance"](subject)
    x, y = next(subject.batches(subject.test))
    right = subject.module.mean_net()(x).argmax(-1) == y
    assert outcome.metrics["deterministic/accuracy"] == pytest.approx(float(right.float().mean()))
    found = bf.diagnostics.kappa(subject.module, [(x, y)], names=["1.weight"], way="exact")["1.weight"]
    scaled = found * len(DIGITS.train) / 60  # a sum over 60 test examples
    above = outcome.arrays["kappa_1.weight"][np.searchsorted(outcome.arrays["edges"], -3) :].sum()
    assert outcome.arrays["kappa_1.weight"].sum() == 64 * 24
    assert above == pytest.approx(int((scaled > 1e-3).sum()), abs=0.1 * 64 * 24)  # its curvature is estimated
    alphas = [values.flatten() for values in bf.diagnostics.log_alpha(subject.module).values()]
    assert outcome.metrics["log_alpha"] == pytest.approx(float(torch.cat(alphas).mean()), rel=1e-5)


def test_chain_by_hand(of_method: dict[str, Subject]) -> None:
    subject = of_method["chain"]
    outcome = SUITES["chain"](subject)
    x, y = subject.few()
    losses, outputs = [], []
    for _, weights in subject.module.posterior.each():
        output = torch.func.functional_call(subject.module.net, weights, (x,))
        losses.append(float(nn.functional.cross_entropy(output, y)))
        outputs.append(output.flatten())
    assert outcome.metrics["stored_draws"] == len(losses) >= 8
    assert outcome.arrays["loss"][0] == pytest.approx(losses, rel=1e-4)
    series = np.array(losses) - np.mean(losses)
    lag_one = (series[1:] * series[:-1]).sum() / (series**2).sum()
    assert outcome.arrays["autocorrelation"][1] == pytest.approx(lag_one, rel=1e-3)
    whole = torch.stack(outputs).detach().double()
    half = len(losses) // 2
    halves = torch.stack([whole[:half], whole[-half:]])
    within, between = halves.var(1).mean(0), halves.mean(1).var(0)
    rhat = (((half - 1) / half * within + between) / within).sqrt()
    assert outcome.metrics["rhat_largest"] == pytest.approx(float(rhat.max()), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("variance", bf.MonteCarloVI(), "train with --method variance"),
        ("chain", bf.MonteCarloVI(), "train with --method atmc"),
        ("chain", bf.ThermostatMCMC(burn_in=0, every=2), "at least 4 stored draws"),
        ("chain", bf.ThermostatMCMC(burn_in=0, every=1, keep="moments"), "at least 4 stored draws"),
        ("kl", bf.EnsemblePatching(2), "this run is by method 'emp'"),
        ("kl", bf.VarianceNetwork(), "compares Monte-Carlo estimators"),
        ("compression", bf.EnsemblePatching(2), "method 'emp' has several"),
    ],
)
def test_a_suite_for_another_method_says_which(
    name: str, method: Method, words: str, subject: Subject
) -> None:
    with pytest.raises(Unsuitable, match=words):
        SUITES[name](replace(subject, model=trained(method, 4)))


def test_what_does_not_suit_is_left_out_unless_nothing_does(subject: Subject) -> None:
    reasons: list[Unsuitable] = []
    found = run_suites(subject, ["variance", "ood", "chain"], left_out=reasons.append)
    assert list(found) == ["ood"]
    assert [str(reason).split("'")[1] for reason in reasons] == ["variance", "chain"]
    with pytest.raises(Unsuitable, match="'variance'"):
        run_suites(subject, ["variance", "chain"], left_out=reasons.append)
