"""What is handed in by mistake is named, with what to give instead."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf

X, Y = torch.randn(20, 6), torch.arange(20) % 2


@pytest.fixture
def model() -> bf.BayesianModule:
    return bf.bayesify(nn.Linear(6, 2), bf.MonteCarloVI(), num_data=20)


@pytest.mark.parametrize("x", [None, 3, 0.5])
def test_an_input_that_is_none(x: Any, model: bf.BayesianModule) -> None:
    with pytest.raises(TypeError, match=f"x={x} must be a batch of inputs, as the network takes them"):
        model.predict(x)


def test_an_input_without_a_batch(model: bf.BayesianModule) -> None:
    with pytest.raises(ValueError, match=r"give inputs with their batch dimension, x\[None\]"):
        model.predict(X[0])


def test_a_class_dim_that_the_output_does_not_have() -> None:
    law = bf.likelihood("categorical", class_dim=3)
    model = bf.bayesify(nn.Linear(6, 2), bf.MonteCarloVI(), law, num_data=20)
    with pytest.raises(ValueError, match=r"a categorical likelihood with class_dim=3 needs \(batch, classes"):
        model.predict(X)
    with pytest.raises(
        ValueError, match="class_dim=1000 must be a whole number of at least 1 and at most 8 or"
    ):
        bf.likelihood("categorical", class_dim=1000)


def test_a_loader_that_is_none(model: bf.BayesianModule) -> None:
    with pytest.raises(TypeError, match="val_loader=3 must give batches"):
        bf.calibrate(model, 3)  # type: ignore[arg-type]
    chain = bf.bayesify(nn.Linear(6, 2), bf.ThermostatMCMC(), num_data=20)
    with pytest.raises(TypeError, match="loader=3 must give batches"):
        bf.sample_chains(chain, 3, num_chains=2, epochs=1)  # type: ignore[arg-type]


def test_seeds_count_from_0(model: bf.BayesianModule) -> None:
    for train in (lambda **o: bf.fit(model, [(X, Y)], progress=False, **o), lambda **o: bf.sample_chains(
        model, [(X, Y)], num_chains=2, **o)):  # fmt: skip
        with pytest.raises(ValueError, match="seed=-1 must be a whole number of at least 0"):
            train(epochs=1, seed=-1)


def test_whole_numbers_are_whole(model: bf.BayesianModule) -> None:
    """Here and on the command line (`--set train.epochs=3.0`); numpy's are numbers, tensors are not."""
    for value in (3.0, torch.tensor(3)):
        with pytest.raises(ValueError, match="epochs=.* must be a whole number of at least 1"):
            bf.fit(model, [(X, Y)], epochs=value, progress=False)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="num_draws=.* must be a whole number of at least 1"):
            model.predict(X, value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a tensor is none, its number is"):
        bf.MonteCarloVI(init_std=torch.tensor(0.1))  # type: ignore[arg-type]
    assert model.predict(X, np.int64(3)).num_draws == 3  # type: ignore[arg-type]


def test_a_regression_has_no_label() -> None:
    model = bf.bayesify(nn.Linear(6, 1), bf.MonteCarloVI(), bf.likelihood("normal", std=1.0), num_data=20)
    with pytest.raises(ValueError, match=r"answers NaN for these \(label -1, of classes\)"):
        model.predict(X * float("nan"))
