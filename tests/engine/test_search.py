"""bf.search: settings ranked by validation."""

import builtins
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.evaluation.metrics import METRICS


def loaders() -> tuple[DataLoader, DataLoader]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 2
    x = torch.randn(200, 2, generator=generator) + 3 * y[:, None]
    part = TensorDataset(x, y)
    return DataLoader(part, 50), DataLoader(part, 200)


def propagated(kl_weight: float, var_floor: float = 1e-3) -> bf.BayesianModule:
    return bf.bayesify(nn.Linear(2, 2), bf.DensityPropagation(kl_weight=kl_weight, var_floor=var_floor))


OPTIONS: dict[str, Any] = {"epochs": 5, "lr": 0.1, "accelerator": "cpu"}


def test_the_best_of_a_grid_comes_first() -> None:
    """A KL weight of 1e6 pins the weights to the prior: nll log 2 or more, against a line that separates the blobs."""
    train, val = loaders()
    grid = {"kl_weight": (1e6, 0.1), "var_floor": (1e-3, 1e-2)}
    trials = bf.search(propagated, train, val, grid, **OPTIONS)
    assert len(trials) == 4
    assert [t.settings["kl_weight"] for t in trials] == [0.1, 0.1, 1e6, 1e6]
    assert trials[0].value == trials[0].metrics["nll"] < math.log(2) < trials[-1].value + 0.05
    most = bf.search(propagated, train, val, {"kl_weight": (1e6, 0.1)}, metric="accuracy", **OPTIONS)
    assert most[0].settings == {"kl_weight": 0.1} and most[0].value >= most[1].value


def test_a_grid_may_be_arrays() -> None:
    train, val = loaders()
    trials = bf.search(propagated, train, val, {"kl_weight": np.array([0.1, 1.0])}, **OPTIONS | {"epochs": 1})
    assert sorted(trial.settings["kl_weight"] for trial in trials) == [0.1, 1.0]
    with pytest.raises(ValueError, match="at least one value each"):
        bf.search(propagated, train, val, {"kl_weight": np.array([])}, **OPTIONS)


def test_the_table_of_metrics_says_which_way_is_better() -> None:
    """A metric of one's own, made large; one that is NaN comes last, as a run does that is not finite."""
    train, val = loaders()
    bf.metrics.register("sureness", lambda probs, target: probs.amax(1).mean(), better="higher")
    bf.metrics.register("nothing", lambda probs, target: math.nan, better="higher")
    try:
        trials = bf.search(propagated, train, val, {"kl_weight": (1e6, 0.1)}, metric="sureness", **OPTIONS)
        assert trials[0].settings == {"kl_weight": 0.1} and trials[0].value > trials[1].value
        assert (
            bf.search(propagated, train, val, {"kl_weight": (0.1,)}, metric="nothing", **OPTIONS)[0].value
            == -math.inf
        )
    finally:
        for name in ("sureness", "nothing"):
            METRICS.pop(name)


def test_trials_differ_by_their_settings_alone() -> None:
    train, val = loaders()
    first, second = bf.search(propagated, train, val, {"kl_weight": (0.1, 0.1)}, **OPTIONS)
    assert first.metrics["accuracy"] == second.metrics["accuracy"]


def test_a_run_that_is_not_finite_is_last() -> None:
    def make(kl_weight: float) -> bf.BayesianModule:
        model = propagated(kl_weight)
        if kl_weight > 1:
            nn.init.constant_(model.net.weight, 1e30)  # type: ignore[arg-type]
        return model

    train, val = loaders()
    trials = bf.search(make, train, val, {"kl_weight": (2.0, 0.1)}, **OPTIONS)
    assert [t.value < math.inf for t in trials] == [True, False]


def test_optuna_stays_between_the_ends() -> None:
    pytest.importorskip("optuna")
    train, val = loaders()
    trials = bf.search(propagated, train, val, {"kl_weight": (0.01, 10.0)}, num_trials=4, **OPTIONS)
    assert len(trials) == 4
    assert all(0.01 <= t.settings["kl_weight"] <= 10 for t in trials)
    assert [t.value for t in trials] == sorted(t.value for t in trials)


def test_optuna_repeats_itself_and_makes_accuracy_large() -> None:
    pytest.importorskip("optuna")
    train, val = loaders()
    options: dict[str, Any] = {"metric": "accuracy", "num_trials": 3, **OPTIONS}
    first, again = (
        bf.search(propagated, train, val, {"kl_weight": (0.01, 1e6)}, **options) for _ in range(2)
    )
    assert [t.settings for t in first] == [t.settings for t in again]
    assert [t.value for t in first] == sorted((t.value for t in first), reverse=True)


def test_optuna_goes_on_after_a_run_that_is_not_finite() -> None:
    pytest.importorskip("optuna")
    count = iter(range(3))

    def make(kl_weight: float) -> bf.BayesianModule:
        model = propagated(kl_weight)
        if next(count) == 0:
            nn.init.constant_(model.net.weight, 1e30)  # type: ignore[arg-type]
        return model

    trials = bf.search(make, *loaders(), {"kl_weight": (0.1, 1.0)}, num_trials=3, **OPTIONS)
    assert [t.value < math.inf for t in trials] == [True, True, False]


def test_optuna_needs_positive_ends() -> None:
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match="values must be positive"):
        bf.search(propagated, *loaders(), {"kl_weight": (0.0, 1.0)}, num_trials=2, **OPTIONS)


def test_without_optuna_the_grid_is_named_as_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install optuna, or leave it out"):
        bf.search(propagated, *loaders(), {"kl_weight": (0.1, 1.0)}, num_trials=2, **OPTIONS)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        bf.search(propagated, *loaders(), {"kl_weight": ()}, **OPTIONS)
    with pytest.raises(ValueError, match="metric='f1' is not measured"):
        bf.search(propagated, *loaders(), {"kl_weight": (0.1,)}, metric="f1", **OPTIONS)
