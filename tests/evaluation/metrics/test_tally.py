"""Batch by batch equals all at once; draws' votes; confidence sets; corruption errors; words for tables."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import top_k_accuracy_score
from torch import Tensor

from bayesify.evaluation import metrics
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.evaluation.metrics.registry import FACTS, fact, header, written


def make(examples: int = 500, classes: int = 12, draws: int = 7) -> tuple[Tensor, Tensor]:
    """Draws (draws, examples, classes) of a classifier, and targets."""
    samples = (2 * torch.randn(draws, examples, classes) + torch.randn(examples, classes)).softmax(-1)
    return samples, torch.randint(classes, (examples,))


def votes_of(samples: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(samples.argmax(-1), samples.shape[-1]).float().mean(0)


# -- streaming ----------------------------------------------------------------------------------------------
def tallied(parts: int, samples: Tensor, target: Tensor) -> ClassificationTally:
    tally = ClassificationTally()
    for s, y in zip(samples.chunk(parts, 1), target.chunk(parts), strict=True):
        tally.add(s.mean(0), y, votes_of(s), len(s))
    return tally


def test_batches_equal_the_functions_on_everything() -> None:
    samples, target = make()
    probs = samples.mean(0)
    result = tallied(7, samples, target).metrics()
    names = ("accuracy", "top5_accuracy", "nll", "brier", "ece", "mce", "adaptive_ece", "classwise_ece")
    for name in names:
        assert result[name] == pytest.approx(float(metrics.METRICS[name](probs, target)), abs=1e-12), name
    wrong = (probs.argmax(1) != target).double()
    assert result["aurc"] == pytest.approx(float(metrics.aurc(-probs.max(1).values, wrong)), abs=1e-6)
    assert result == pytest.approx(tallied(1, samples, target).metrics(), abs=1e-6)


def test_an_empty_tally_says_so() -> None:
    with pytest.raises(ValueError, match="nothing to evaluate"):
        ClassificationTally().metrics()


def test_a_tally_keeps_numbers_per_example_only() -> None:
    samples, target = make(100, 1000, 2)
    tally = ClassificationTally()
    for _ in range(5):
        tally.add(samples.mean(0), target, votes_of(samples), 2)
    assert all(value.shape == (500,) for value in tally.values().values())


def test_curves_of_a_tally() -> None:
    samples, target = make()
    tally = tallied(3, samples, target)
    whole = metrics.reliability(samples.mean(0), target)
    assert torch.equal(tally.reliability().size, whole.size)
    assert tally.reliability(num_bins=8).size.sum() == 500
    assert len(tally.risk_coverage().risk) == 500
    sets = tally.confidence_sets(torch.tensor([0.0, 0.5]))
    assert sets.size[0] == 1
    without = ClassificationTally()
    without.add(samples.mean(0), target)
    with pytest.raises(ValueError, match="confidence sets need votes"):
        without.confidence_sets(torch.tensor([0.5]))


# -- top k --------------------------------------------------------------------------------------------------
def test_top5_equals_sklearn() -> None:
    samples, target = make()
    probs = samples.mean(0)
    expected = top_k_accuracy_score(target, probs.numpy(), k=5, labels=range(12))
    assert float(metrics.top5_accuracy(probs, target)) == pytest.approx(expected)


def test_top5_of_equal_probabilities_takes_the_first_classes() -> None:
    probs = torch.full((10, 10), 0.1)
    assert float(metrics.top5_accuracy(probs, torch.arange(10))) == 0.5


def test_top5_of_three_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k=5 must lie in 1 … 3"):
        metrics.top5_accuracy(torch.rand(2, 3), torch.tensor([0, 1]))


# -- draws --------------------------------------------------------------------------------------------------
def test_entropies_equal_scipy() -> None:
    samples, _ = make()
    double = samples.double().numpy()
    whole = stats.entropy(double.mean(0), axis=-1)
    expected = stats.entropy(double, axis=-1).mean(0)
    assert metrics.predictive_entropy(samples).tolist() == pytest.approx(whole.tolist(), rel=1e-6)
    assert metrics.expected_entropy(samples).tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    information = metrics.mutual_information(samples)
    assert information.tolist() == pytest.approx((whole - expected).tolist(), abs=1e-6)


def test_disagreement_counts_pairs() -> None:
    samples, _ = make(40, 4, 6)
    labels = samples.argmax(-1).numpy()
    pairs = [labels[i] != labels[j] for i in range(6) for j in range(6) if i != j]
    value = metrics.disagreement(votes_of(samples), 6)
    assert value.tolist() == pytest.approx(np.mean(pairs, 0).tolist(), abs=1e-6)
    assert metrics.disagreement(votes_of(samples[:1]), 1).sum() == 0


# -- confidence sets ----------------------------------------------------------------------------------------
def test_confidence_sets_by_numpy() -> None:
    samples, target = make(draws=10)
    votes = votes_of(samples)
    share, label = votes.max(1)
    correct = (label == target).double()
    sets = metrics.confidence_sets(share, correct)
    for t, size, accuracy in zip(*(s.tolist() for s in sets), strict=True):
        inside = np.round(share.numpy() * 10) >= np.round(t * 10)
        assert size == pytest.approx(inside.mean())
        if inside.any():
            assert accuracy == pytest.approx(correct.numpy()[inside].mean())


@pytest.mark.parametrize("draws", [3, 7, 10, 30, 100])
def test_votes_on_a_threshold_are_inside(draws: int) -> None:
    """A share of k votes out of S, in single precision, is in the set of threshold k / S."""
    share = torch.arange(1, draws + 1) / draws
    thresholds = [k / draws for k in range(1, draws + 1)]
    sets = metrics.confidence_sets(share, torch.ones(draws), thresholds)
    assert (sets.size * draws).round().tolist() == list(range(draws, 0, -1))


def test_an_empty_set_has_no_accuracy() -> None:
    sets = metrics.confidence_sets(torch.tensor([0.4]), torch.tensor([1]), [0.3, 0.5])
    assert sets.size.tolist() == [1, 0]
    assert sets.accuracy[0] == 1
    assert sets.accuracy[1].isnan()


# -- corruption errors --------------------------------------------------------------------------------------
def test_corruption_errors_by_hand() -> None:
    """The clean error counts once per severity, and the reference's stands below the line."""
    error, reference = torch.tensor([[0.2, 0.4], [0.3, 0.3]]), torch.tensor([[0.4, 0.4], [0.3, 0.5]])
    assert metrics.corruption_errors(error, reference).tolist() == pytest.approx([0.75, 0.75])
    assert float(metrics.mean_corruption_error(error, reference)) == pytest.approx(0.75)
    relative = metrics.relative_corruption_errors(error, 0.1, reference, 0.2)
    assert relative.tolist() == pytest.approx([(0.1 + 0.3) / (0.2 + 0.2), (0.2 + 0.2) / (0.1 + 0.3)])
    assert float(metrics.relative_mean_corruption_error(error, 0.1, reference, 0.2)) == pytest.approx(1)
    same = metrics.relative_mean_corruption_error(reference, 0.2, reference, 0.2)
    assert float(same) == pytest.approx(1)
    with pytest.raises(ValueError, match="must cover the same corruptions"):
        metrics.mean_corruption_error(error, reference[:1])


# -- words --------------------------------------------------------------------------------------------------
def test_every_reported_metric_has_a_meaning() -> None:
    samples, target = make()
    for name in tallied(1, samples, target).metrics():
        assert fact(name).meaning, name
    assert all(f.meaning for f in FACTS.values())


def test_words_of_a_table() -> None:
    assert header("ece", 20) == "ECE (20 bins)"
    assert header("nll", 20) == "NLL"
    assert header("fog/accuracy") == "accuracy"
    assert header("noise/auroc_mutual_information") == "AUROC by mutual information"
    assert (header("nll_of_one"), header("few")) == ("nll of one", "few")
    assert written("val_accuracy", 0.5) == "50.00 %"
    assert written("unheard_of", 0.123456) == "0.1235"
