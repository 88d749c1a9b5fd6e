"""AUROC, AUPR and FPR95 against scikit-learn, with ties, few examples and a million of them."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from bayesify.evaluation import metrics


def reference(inside: Tensor, outside: Tensor) -> tuple[float, float, float]:
    labels = np.concatenate([np.zeros(len(inside)), np.ones(len(outside))])
    scores = torch.cat([inside, outside]).double().numpy()
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    return (
        roc_auc_score(labels, scores),
        average_precision_score(labels, scores),
        float(false[np.flatnonzero(true >= 0.95)[0]]),
    )


def ours(inside: Tensor, outside: Tensor) -> tuple[float, float, float]:
    functions = (metrics.auroc, metrics.aupr, metrics.fpr95)
    return tuple(float(f(inside, outside)) for f in functions)  # type: ignore[return-value]


CASES = {
    "separate means": lambda: (torch.randn(500), torch.randn(300) + 1),
    "ties everywhere": lambda: (torch.randint(4, (500,)).float(), torch.randint(1, 6, (200,)).float()),
    "all equal": lambda: (torch.ones(20), torch.ones(30)),
    "perfect": lambda: (torch.zeros(20), torch.ones(30)),
    "reversed": lambda: (torch.ones(20), torch.zeros(30)),
    "one each": lambda: (torch.tensor([0.3]), torch.tensor([0.7])),
    "one outside": lambda: (torch.rand(100), torch.tensor([0.5])),
    "float16": lambda: (torch.rand(5000).half(), (torch.rand(5000) + 0.2).half()),
    "infinite": lambda: (torch.randn(50), torch.cat([torch.randn(49), torch.tensor([1e30])])),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_sklearn(case: str) -> None:
    inside, outside = CASES[case]()
    assert ours(inside, outside) == pytest.approx(reference(inside, outside), abs=1e-12)


def test_a_million_examples_equal_sklearn() -> None:
    inside, outside = torch.randn(10**6).double(), torch.randn(10**5).double() + 0.5
    assert ours(inside, outside) == pytest.approx(reference(inside, outside), abs=1e-9)


def test_out_of_distribution_is_the_positive_class() -> None:
    inside, outside = torch.zeros(90), torch.ones(10)
    assert float(metrics.auroc(inside, outside)) == 1
    assert float(metrics.auroc(outside, inside)) == 0
    assert float(metrics.fpr95(inside, outside)) == 0


@pytest.mark.parametrize("bad", [torch.empty(0), torch.randn(3, 2), torch.tensor([0.1, float("nan")])])
def test_what_is_no_score_is_refused(bad: Tensor) -> None:
    with pytest.raises(ValueError, match="outside"):
        metrics.auroc(torch.randn(4), bad)
