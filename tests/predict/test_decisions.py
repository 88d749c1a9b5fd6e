"""Uncertainties, what to answer, and what to label next: by hand, and on networks."""

import math

import pytest
import torch
from predictive_cases import P1, P2, generator, loader, make, predictive, regression, two_draws
from scipy import stats

import bayesify as bf

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))


def pred(*probs: tuple[float, ...]) -> bf.Predictive:
    """Examples with these probabilities, all draws the same."""
    return predictive(bf.likelihood("categorical"), [torch.tensor(probs).log()] * 2)


def test_every_uncertainty_by_hand() -> None:
    p = two_draws()
    mean_entropy = (stats.entropy(P1) + stats.entropy(P2)) / 2
    assert p.uncertainty().item() == pytest.approx(stats.entropy([0.4, 0.4, 0.2]), rel=1e-5)
    bald = float(stats.entropy([0.4, 0.4, 0.2]) - mean_entropy)
    assert p.uncertainty("bald").item() == pytest.approx(bald, rel=1e-4)
    assert torch.equal(p.uncertainty("mutual_information"), p.uncertainty("bald"))
    assert p.uncertainty("confidence").item() == pytest.approx(0.6)
    assert p.uncertainty("agreement").item() == pytest.approx(0.5)
    assert p.uncertainty("variance").item() == pytest.approx(2 * (0.3**2 + 0.2**2 + 0.1**2), rel=1e-5)


def test_bald_of_a_regression_is_that_of_normals() -> None:
    p = regression()
    normal = stats.norm.entropy(scale=p.std.numpy()) - stats.norm.entropy(scale=p.aleatoric.sqrt().numpy())
    expected = torch.as_tensor(normal).float().flatten(1).mean(1)
    torch.testing.assert_close(p.uncertainty("bald"), expected)
    torch.testing.assert_close(p.uncertainty("variance"), p.variance.flatten(1).mean(1))
    with pytest.raises(
        ValueError, match=r"score='confidence' does not exist; choose from bald, entropy, variance"
    ):
        p.uncertainty("confidence")


def test_positions_count_as_their_mean() -> None:
    tokens = bf.likelihood("categorical", class_dim=-1)
    p = predictive(tokens, [torch.randn(4, 5, 3, generator=generator(s)) for s in range(3)])
    torch.testing.assert_close(p.uncertainty("bald"), p.mutual_information.mean(1))
    torch.testing.assert_close(p.uncertainty("variance"), p.variance.sum(-1).mean(1))


def test_the_surest_share_is_answered() -> None:
    p = pred((0.5, 0.5), (0.9, 0.1), (0.6, 0.4), (0.99, 0.01))
    assert p.abstain(0.5).tolist() == [False, True, False, True]
    assert p.abstain(0.51).tolist() == [False, True, True, True]  # rounded up
    assert p.abstain(1.0).all() and not p.abstain(0.0).any()
    assert p.abstain(0.5, "confidence").tolist() == [False, True, False, True]
    assert pred(*[(0.5, 0.5)] * 10).abstain().tolist() == [True] * 9 + [False]  # 0.9; of equal ones the first


def test_a_threshold_from_other_data() -> None:
    p, other = pred((0.5, 0.5), (0.9, 0.1), (0.6, 0.4)), pred((0.7, 0.3), (0.8, 0.2))
    threshold = other.uncertainty().quantile(1.0)
    assert p.abstain(threshold=threshold).tolist() == [False, True, False]
    assert p.abstain(threshold=float(threshold)).tolist() == [False, True, False]
    with pytest.raises(ValueError, match=r"coverage=0.5 and threshold=1.0: give one of them"):
        p.abstain(0.5, threshold=1.0)
    with pytest.raises(ValueError, match=r"threshold='x' must be a number"):
        p.abstain(threshold="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"coverage=1.5 must be a number"):
        p.abstain(1.5)
    with pytest.raises(ValueError, match=r"score='entropie' does not exist; .* Did you mean 'entropy'"):
        p.abstain(score="entropie")


def test_nan_is_never_answered() -> None:
    m, x = make(), X.clone()
    x[3] = math.nan
    p = m.predict(x, on_nonfinite="nan")
    assert not p.abstain(1.0)[3] and p.abstain(1.0).sum() == 29
    assert not p.abstain(threshold=100.0)[3]
    assert bf.acquisition(p, kind="entropy").indices[-1] == 3


def test_sure_answers_are_right_more_often() -> None:
    """Labels of the predicted law: of the surer half more than 9 in 10 are right, of the other fewer than 8."""
    logits = 3 * torch.randn(4000, 3, generator=generator())
    p = predictive(bf.likelihood("categorical"), [logits])
    y = torch.multinomial(p.probs, 1, generator=generator(2))[:, 0]
    right, keep = (p.label == y).double(), p.abstain(0.5)
    assert right[keep].mean() > 0.9 and right[~keep].mean() < 0.8


# -- acquisition --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["bald", "entropy", "confidence", "variance", "agreement"])
def test_acquisition_orders_a_pool(kind: str) -> None:
    m = make()
    found = bf.acquisition(m, X, kind, k=5, generator=generator())
    p = m.predict(X, generator=generator())
    torch.testing.assert_close(found.scores, p.uncertainty(kind))
    assert found.scores[found.indices].tolist() == sorted(found.scores.tolist(), reverse=True)[:5]
    again = bf.acquisition(p, kind=kind)
    assert torch.equal(again.indices[:5], found.indices) and len(again.indices) == 30


def test_acquisition_of_a_loader_counts_over_its_batches() -> None:
    m = make()
    pool = loader(X, torch.zeros(30), batch_size=7)
    found = bf.acquisition(m, pool, k=3, generator=generator())
    assert found.scores.shape == (30,) and len(found.indices) == 3


def test_what_acquisition_refuses() -> None:
    point = bf.bayesify(torch.nn.Linear(4, 3), bf.Point())
    with pytest.raises(
        ValueError, match=r"kind='bald' is what several draws disagree on, .* use kind='entropy'"
    ):
        bf.acquisition(point, X)
    assert len(bf.acquisition(point, X, "entropy").indices) == 30
    with pytest.raises(ValueError, match=r"x is the pool of a model, and a prediction has none"):
        bf.acquisition(point)
    with pytest.raises(ValueError, match=r"x is the pool of a model, and a prediction has none"):
        bf.acquisition(point.predict(X), X)
    with pytest.raises(ValueError, match=r"kind='bold' does not exist; .* Did you mean 'bald'"):
        bf.acquisition(make(), X, "bold")
    with pytest.raises(ValueError, match=r"k=0 must be a whole number of at least 1"):
        bf.acquisition(make(), X, "entropy", k=0)
