"""A metric of one's own, registered from outside: in evaluate, a suite, the report and the command line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runs import DIGITS, succeed
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import load
from bayesify.evaluation.metrics import METRICS
from bayesify.evaluation.metrics.registry import FACTS, fact, header, written
from bayesify.report import Report
from bayesify.studies.suites import Evaluation, Subject, run_suites


def worst_class(probs: Tensor, target: Tensor) -> Tensor:
    """Accuracy of the class that is recognised worst."""
    right = (probs.argmax(1) == target).double()
    return torch.stack([right[target == c].mean() for c in target.unique()]).min()


def bias(predictive: bf.Predictive, target: Tensor) -> float:
    """Mean prediction minus mean target."""
    return float((predictive.mean - target).mean())


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = dict(METRICS)
    yield
    METRICS.clear()
    METRICS.update(before)


def ensemble(net: nn.Module, likelihood: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    return bf.bayesify(net, bf.DeepEnsemble(num_members=3), likelihood)


def batches(x: Tensor, y: Tensor, size: int = 7) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(size), y.split(size), strict=True))


def test_a_classification_metric_sees_the_whole_set() -> None:
    model = ensemble(nn.Linear(4, 3), "categorical")
    x, y = torch.randn(30, 4), torch.randint(3, (30,))
    before = bf.evaluate(model, batches(x, y))
    bf.metrics.register("worst_class", worst_class, better="higher", unit="%")
    result = bf.evaluate(model, batches(x, y))
    assert result["worst_class"] == pytest.approx(float(worst_class(model.predict(x).probs, y)))
    assert {key: result[key] for key in before} == before
    assert "worst_class" not in bf.evaluate(
        ensemble(nn.Linear(4, 1), "normal"), batches(x, torch.randn(30, 1))
    )
    METRICS.pop("worst_class")
    assert bf.evaluate(model, batches(x, y)) == before


def test_two_labels_are_two_classes_and_ignored_positions_are_left_out() -> None:
    shapes = []

    def seen(probs: Tensor, target: Tensor) -> float:
        shapes.append((tuple(probs.shape), target.dtype))
        return float(probs.sum())

    bf.metrics.register("seen", seen)
    binary = ensemble(nn.Linear(4, 1), "bernoulli")
    assert bf.evaluate(binary, batches(torch.randn(9, 4), torch.randint(2, (9, 1))))["seen"] == pytest.approx(
        9
    )
    tokens = ensemble(nn.Linear(4, 3), bf.likelihood("categorical", class_dim=-1))
    y = torch.randint(3, (6, 5))
    y[:, 3:] = -100
    assert bf.evaluate(tokens, batches(torch.randn(6, 5, 4), y, 2))["seen"] == pytest.approx(18)
    assert shapes == [((9, 2), torch.int64), ((18, 3), torch.int64)]


def test_a_regression_metric_sees_the_whole_predictive() -> None:
    def spread(predictive: bf.Predictive, target: Tensor) -> Tensor:
        assert predictive.samples.shape == (3, *target.shape)
        return predictive.epistemic.mean()

    model = ensemble(nn.Linear(4, 1), "normal")
    x, y = torch.randn(30, 4), torch.randn(30)
    bf.metrics.register("bias", bias, task="regression")
    bf.metrics.register("spread", spread, task="regression", better="lower")
    result = bf.evaluate(model, batches(x, y))
    predicted = model.predict(x)
    assert result["bias"] == pytest.approx(float(predicted.mean.mean() - y.mean()), abs=1e-6)
    assert result["spread"] == pytest.approx(float(predicted.epistemic.mean()), rel=1e-5)
    assert list(result)[-3:] == ["bias", "spread", "num_data"]


def test_a_metric_of_unknown_inputs() -> None:
    bf.metrics.register(
        "gap", lambda known, unknown: unknown.mean() - known.mean(), task="ood", better="higher"
    )
    model = ensemble(nn.Linear(4, 3), "categorical")
    x, y, others = torch.randn(12, 4), torch.randint(3, (12,)), 5 * torch.randn(8, 4)
    result = bf.evaluate(model, batches(x, y), ood={"far": [others]})
    expected = model.predict(others).entropy.mean() - model.predict(x).entropy.mean()
    assert result["far/gap"] == pytest.approx(float(expected), abs=1e-5)


def test_words_of_tables() -> None:
    bf.metrics.register("worst_class", worst_class, better="higher", unit="%")
    bf.metrics.register("plain", lambda probs, target: 0.5, about="always one half")
    assert fact("worst_class").meaning == "Accuracy of the class that is recognised worst."
    assert (fact("val_worst_class").better, fact("plain").better) == ("higher", None)
    assert (header("worst_class"), written("worst_class", 0.25), written("plain", 0.25)) == (
        "worst class",
        "25.00 %",
        "0.25",
    )
    table = succeed("show", "metrics").stdout
    assert "worst_class" in table and "always one half" in table
    assert "num_bins" in succeed("show", "metrics", "ece").stdout


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_suite_and_report(task: str) -> None:
    name, likelihood = ("digits", "categorical") if task == "classification" else ("diabetes", "normal")
    data = load(name)
    shape = data.input_shape
    net = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 10 if task == "classification" else 1))
    subject = Subject(ensemble(net, likelihood), data.test, data.normalisation, num_draws=3)
    if task == "classification":
        bf.metrics.register("worst_class", worst_class, better="higher")
        key = "worst_class"
    else:
        bf.metrics.register("own_bias", bias, task=task, better="lower")
        key = "own_bias"
    outcomes = run_suites(subject, ["calibration"])
    value = outcomes["calibration"].metrics[key]
    runs = [Evaluation(label, "deep_ensemble", {}, outcomes) for label in ("one", "two")]
    report = Report(runs)
    column = next(c for c in report.overview().columns if c.key == key)
    assert column.header == key.replace("_", " ")
    assert (column.better, column.meaning) == (METRICS[key].better, METRICS[key].meaning)
    assert written(key, value) in report.page().html()
    METRICS.pop(key)  # a report of stored numbers, made where the metric is not registered
    assert key in [c.key for c in Report(runs).overview().columns]


def test_the_command_line(tmp_path: Path) -> None:
    bf.metrics.register("worst_class", worst_class, better="higher", unit="%")
    succeed("train", *DIGITS, "--folder", tmp_path / "run")
    result = succeed("evaluate", tmp_path / "run", "--json", tmp_path / "m.json", "--num-draws", "2")
    numbers = json.loads((tmp_path / "m.json").read_text())["metrics"]
    assert 0 <= numbers["worst_class"] <= numbers["accuracy"]
    assert re.search(r"worst_class +\d+\.\d\d % +Accuracy of the class", result.stdout)
    succeed("report", tmp_path / "run", "--page", tmp_path / "r.html", "--csv", tmp_path / "r.csv")
    assert "worst_class" in (tmp_path / "r.csv").read_text().splitlines()[0].split(",")
    assert "worst class" in (tmp_path / "r.html").read_text()


def test_what_is_refused() -> None:
    for name in ("nll", "entropy", "num_data"):
        with pytest.raises(ValueError, match=f"name='{name}' exists: choose another name"):
            bf.metrics.register(name, worst_class)
    bf.metrics.register("mine", worst_class)
    with pytest.raises(ValueError, match=r"name='mine' exists.*METRICS\.pop\('mine'\)"):
        bf.metrics.register("mine", worst_class)
    for bad in ("", "a/b", 3, "a b", " ", "a\n"):
        with pytest.raises(ValueError, match="must be a word without '/'"):
            bf.metrics.register(bad, worst_class)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="task='regresion' does not exist.*Did you mean 'regression'"):
        bf.metrics.register("own", worst_class, task="regresion")
    with pytest.raises(TypeError, match=r"f=0\.5 must be a function, f\(predictive, target\)"):
        bf.metrics.register("own", 0.5, task="regression")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="better='up' must be 'higher', 'lower' or None"):
        bf.metrics.register("own", worst_class, better="up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unit='kg' must be '%', 'count' or ''"):
        bf.metrics.register("own", worst_class, unit="kg")  # type: ignore[arg-type]
    assert "own" not in METRICS


@pytest.mark.parametrize("task", ["classification", "ood"])
def test_an_error_inside_a_metric_names_it(task: str) -> None:
    bf.metrics.register("own", lambda a, b: a.nothing, task=task)
    model, x = ensemble(nn.Linear(4, 3), "categorical"), torch.randn(2, 4)
    with pytest.raises(RuntimeError, match=r"metric 'own' failed: .*'nothing' \(AttributeError\)"):
        bf.evaluate(model, [(x, torch.tensor([0, 1]))], ood=[x])


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "None"), ("0.5", "'0.5'"), (torch.ones(3), r"Tensor of shape \(3,\)"), ({}, r"\{\}")],
)
def test_what_is_no_number_is_named(value: Any, said: str) -> None:
    bf.metrics.register("own", lambda probs, target: value)
    model = ensemble(nn.Linear(4, 3), "categorical")
    with pytest.raises(
        TypeError, match=rf"metric 'own' returned {said}: return one number, e\.g\. values\.mean"
    ):
        bf.evaluate(model, [(torch.randn(2, 4), torch.tensor([0, 1]))])


def test_the_registry_is_what_evaluate_computes() -> None:
    """Every number of an evaluation is a metric of the registry, and says what it is; every metric has words."""
    x, y = torch.randn(20, 4), torch.randint(12, (20,))
    found = bf.evaluate(ensemble(nn.Linear(4, 12), "categorical"), batches(x, y), ood=[x])
    found |= bf.evaluate(ensemble(nn.Linear(4, 1), "normal"), batches(x, torch.randn(20, 1)))
    counts = {"num_data", "num_bins"}
    reported = {n for n, m in METRICS.items() if m.classification or m.regression or m.ood}
    assert set(found) - counts == reported
    assert all(m.meaning and m.function.__doc__ for m in METRICS.values())
    assert not set(METRICS) & set(FACTS)
