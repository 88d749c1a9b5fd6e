"""The sets inside scikit-learn."""

import sys

import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits

from bayesify.data import load


@pytest.mark.parametrize(
    ("name", "num_train", "num_test", "shape", "num_outputs"),
    [
        ("digits", 1438, 359, (1, 8, 8), 10),
        ("breast_cancer", 455, 114, (30,), 2),
        ("wine", 142, 36, (13,), 3),
        ("diabetes", 354, 88, (10,), 1),
    ],
)
def test_sizes(name: str, num_train: int, num_test: int, shape: tuple[int, ...], num_outputs: int) -> None:
    ds = load(name)
    assert (len(ds.train), len(ds.test)) == (num_train, num_test)
    assert (ds.input_shape, ds.num_outputs) == (shape, num_outputs)


def test_every_digit_is_in_one_part() -> None:
    ds = load("digits")
    ours = torch.cat([ds.train.inputs, ds.test.inputs]).flatten(1) * 16
    theirs = torch.from_numpy(load_digits().data).float()
    assert torch.equal(ours.sort(dim=0).values, theirs.sort(dim=0).values)
    assert ds.test.targets[:8].tolist() == [2, 8, 2, 6, 6, 7, 1, 9]  # the split never changes


def test_diabetes_is_in_original_units() -> None:
    ds = load("diabetes")
    assert ds.train.targets.max() == 346
    raw = load_diabetes(scaled=False).data
    assert torch.cat([ds.train.inputs, ds.test.inputs])[:, 0].sum().item() == pytest.approx(raw[:, 0].sum())


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"data set 'digits' needs scikit-learn.*pip install scikit-learn"):
        load("digits")
