"""The made-up sets."""

import pytest
import torch

from bayesify.data import load


@pytest.mark.parametrize("name", ["two_moons", "regression_gap"])
def test_size_and_seed(name: str) -> None:
    first, again, other = (load(name, num_train=30, num_test=10, seed=s) for s in (1, 1, 2))
    assert (len(first.train), len(first.test)) == (30, 10)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert not torch.equal(first.train.inputs, other.train.inputs)


def test_moons_lie_on_their_circles() -> None:
    ds = load("two_moons", noise_std=0.0)
    upper, lower = (ds.train.inputs[ds.train.targets == k] for k in (0, 1))
    assert torch.allclose(upper.norm(dim=1), torch.ones(100))
    assert torch.allclose((lower - torch.tensor([1.0, 0.5])).norm(dim=1), torch.ones(100))
    assert upper[:, 1].min() >= 0
    assert lower[:, 1].max() <= 0.5


def test_the_gap_holds_no_training_input() -> None:
    ds = load("regression_gap", num_train=500, noise_std=0.0)
    x = ds.train.inputs[:, 0]
    assert not ((x > -1) & (x < 1.5)).any()
    assert ((x < -1).any(), (x > 1.5).any(), x.abs().max() <= 4) == (True, True, True)
    assert ((ds.test.inputs > -1) & (ds.test.inputs < 1.5)).sum() > 50
    assert torch.allclose(ds.train.targets[:, 0], torch.sin(1.5 * x) + x / 4, atol=1e-5)


@pytest.mark.parametrize("name", ["two_moons", "regression_gap"])
def test_refuses(name: str) -> None:
    with pytest.raises(ValueError, match="num_train=1 must be at least 2"):
        load(name, num_train=1)
    with pytest.raises(ValueError, match="num_test=0 must be at least 2"):
        load(name, num_test=0)
    with pytest.raises(ValueError, match="noise_std=-1 must not be negative"):
        load(name, noise_std=-1)
