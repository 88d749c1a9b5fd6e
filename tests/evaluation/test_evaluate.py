"""bf.evaluate equals the metrics computed by hand from one prediction of all data."""

import math
from collections import UserDict
from typing import Any

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.evaluation import metrics


def loader(x: Tensor, y: Tensor, batch_size: int = 7) -> DataLoader:
    return DataLoader(TensorDataset(x, y), batch_size)


def data(load: Any, rows: int = 40) -> tuple[Tensor, Tensor]:
    x, y = load(return_X_y=True)
    x = torch.tensor(x[:rows], dtype=torch.float32)
    return (x - x.mean(0)) / (x.std(0) + 1), torch.tensor(y[:rows])


def ensemble(net: nn.Module, likelihood: Any) -> bf.BayesianModule:
    """Random but the same at every call: three members without noise."""
    return bf.bayesify(net, bf.DeepEnsemble(num_members=3), likelihood)


def test_classification() -> None:
    x, y = data(load_digits)
    model = ensemble(nn.Linear(64, 10), "categorical")
    result = bf.evaluate(model, loader(x, y))
    pred = model.predict(x)
    for name in ("accuracy", "nll", "brier", "ece", "mce"):
        assert result[name] == pytest.approx(float(metrics.METRICS[name](pred.probs, y)), rel=1e-6)
    for name in ("entropy", "epistemic", "confidence"):
        assert result[name] == pytest.approx(float(getattr(pred, name).double().mean()), rel=1e-5)
    assert result["num_data"] == 40
    assert result["num_bins"] == 15
    assert result["nll"] == pytest.approx(-float(pred.log_prob(y).mean()), rel=1e-5)


@pytest.mark.parametrize("num_bins", [5, 20])
def test_the_number_of_bins_can_be_chosen(num_bins: int) -> None:
    x, y = data(load_digits)
    model = ensemble(nn.Linear(64, 10), "categorical")
    result = bf.evaluate(model, loader(x, y), num_bins=num_bins)
    assert result["ece"] == pytest.approx(float(metrics.ece(model.predict(x).probs, y, num_bins)), rel=1e-6)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_bernoulli(shape: tuple[int, ...]) -> None:
    x, y = data(load_breast_cancer)
    model = ensemble(nn.Linear(30, 1), "bernoulli")
    result = bf.evaluate(model, loader(x, y.reshape(shape)))
    pred = model.predict(x)
    one = pred.probs[:, 0]
    probs = torch.stack([1 - one, one], 1)
    assert result["accuracy"] == pytest.approx(float((pred.label[:, 0] == y).double().mean()))
    assert result["nll"] == pytest.approx(-float(pred.log_prob(y).mean()), rel=1e-5)
    assert result["brier"] == pytest.approx(float(2 * (one.double() - y).square().mean()), rel=1e-5)
    assert result["ece"] == pytest.approx(float(metrics.ece(probs, y)), rel=1e-6)
    assert result["epistemic"] == pytest.approx(float(pred.mutual_information.mean()), rel=1e-4)


def test_several_labels_at_once_count_one_by_one() -> None:
    x, y = torch.randn(9, 4), torch.randint(2, (9, 3))
    model = ensemble(nn.Linear(4, 3), "bernoulli")
    result = bf.evaluate(model, loader(x, y, 4))
    pred = model.predict(x)
    assert result["accuracy"] == pytest.approx(float((pred.label == y).double().mean()))
    assert result["nll"] == pytest.approx(-float(pred.log_prob(y).mean()) / 3, rel=1e-5)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_regression(shape: tuple[int, ...]) -> None:
    x, y = data(load_diabetes)
    y = (y.float() - y.float().mean()) / 50
    model = ensemble(nn.Linear(10, 1), bf.likelihood("normal", std=0.5))
    result = bf.evaluate(model, loader(x, y.reshape(shape)))
    pred = model.predict(x, keep_samples=True)
    assert result["rmse"] == pytest.approx(math.sqrt(float((pred.mean[:, 0] - y).square().mean())), rel=1e-5)
    assert result["nll"] == pytest.approx(-float(pred.log_prob(y).mean()), rel=1e-5)
    assert result["std"] == pytest.approx(float(pred.std.mean()), rel=1e-5)
    assert result["num_data"] == 40


def test_the_nll_of_a_regression_is_that_of_the_mixture_over_draws() -> None:
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    method = bf.MonteCarloVI(init_std=1.0, where=bf.where.all)
    model = bf.bayesify(nn.Linear(3, 1), method, bf.likelihood("normal", std=1.0), num_data=8)
    generator = torch.Generator().manual_seed(1)
    result = bf.evaluate(model, loader(x, y, 8), num_draws=30, generator=generator)
    pred = model.predict(x, 30, keep_samples=True, generator=torch.Generator().manual_seed(1))
    means, variances = pred.per_draw
    mixture = torch.distributions.Normal(means, variances.sqrt()).log_prob(y).sum(2).logsumexp(0) - math.log(
        30
    )
    assert result["nll"] == pytest.approx(-float(mixture.mean()), rel=1e-5)


def test_a_smaller_last_batch_counts_by_its_size() -> None:
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    model = ensemble(nn.Linear(4, 3), "categorical")
    whole, parts = bf.evaluate(model, loader(x, y, 5)), bf.evaluate(model, loader(x, y, 4))
    assert parts == pytest.approx(whole, rel=1e-5)


def test_a_generator_makes_it_reproducible() -> None:
    x, y = torch.randn(9, 4), torch.randint(3, (9,))
    model = bf.bayesify(nn.Linear(4, 3), bf.MonteCarloVI(init_std=1.0), num_data=9)
    results = [
        bf.evaluate(model, loader(x, y), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    ]
    assert results[0] == results[1]
    assert results[0] != results[2]


def test_a_batch_may_be_a_dict_with_labels() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, features: Tensor) -> Tensor:
            return self.layer(features)

    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    model = bf.bayesify(Net(), bf.Point())
    result = bf.evaluate(model, [{"features": x, "labels": y}])
    assert result["accuracy"] == pytest.approx(
        float((model.predict({"features": x}).label == y).double().mean())
    )


# -- positions: (batch, tokens, classes) ---------------------------------------------------------------
def token_model() -> bf.BayesianModule:
    likelihood = bf.likelihood("categorical", class_dim=-1)
    return ensemble(nn.Linear(4, 3), likelihood)


def test_ignored_positions_count_in_no_metric() -> None:
    x, y = torch.randn(6, 5, 4), torch.randint(3, (6, 5))
    ignored = torch.rand(6, 5) < 0.4
    model = token_model()
    result = bf.evaluate(model, loader(x, y.masked_fill(ignored, -100), 2))
    pred = model.predict(x)
    probs, target = pred.probs[~ignored], y[~ignored]
    assert result["accuracy"] == pytest.approx(float(metrics.accuracy(probs, target)))
    assert result["nll"] == pytest.approx(float(metrics.nll(probs, target)), rel=1e-6)
    for name in ("entropy", "epistemic", "confidence"):
        assert result[name] == pytest.approx(float(getattr(pred, name)[~ignored].mean()), rel=1e-5), name


def test_batches_of_different_lengths() -> None:
    model = token_model()
    batches = [(torch.randn(2, n, 4), torch.randint(3, (2, n))) for n in (4, 7)]
    result = bf.evaluate(model, batches)
    preds = [model.predict(x) for x, _ in batches]
    probs = torch.cat([p.probs.reshape(-1, 3) for p in preds])
    target = torch.cat([y.reshape(-1) for _, y in batches])
    assert result["accuracy"] == pytest.approx(float(metrics.accuracy(probs, target)))
    confidence = torch.cat([p.confidence.reshape(-1) for p in preds]).mean()
    assert result["confidence"] == pytest.approx(float(confidence), rel=1e-5)


# -- what it refuses ----------------------------------------------------------------------------------
def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ValueError, match="the loader is empty: nothing to evaluate"):
        bf.evaluate(token_model(), [])


def test_a_batch_may_be_a_mapping_that_is_no_dict() -> None:
    """transformers' collators give a BatchEncoding, which is a UserDict."""
    torch.manual_seed(0)
    model = bf.bayesify(nn.Linear(3, 2), "point")
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    batch = UserDict({"input": x, "labels": y})
    assert bf.evaluate(model, [batch]) == bf.evaluate(model, [(x, y)])
    assert bf.fit(model, [batch], epochs=1, progress=False)[0]["nll"] > 0


def test_batches_of_three_are_refused() -> None:
    """The third might be a sample weight, or the second another input: neither may be ignored."""
    model = bf.bayesify(nn.Linear(3, 2), "point")
    triples = DataLoader(TensorDataset(torch.randn(4, 3), torch.zeros(4).long(), torch.ones(4)))
    with pytest.raises(ValueError, match=r"gives 3 things at a time.*\(\(a, b\), target\); sample weights"):
        bf.evaluate(model, triples)
    with pytest.raises(ValueError, match="gives 3 things at a time"):
        bf.fit(model, triples, epochs=1, progress=False)


def test_nan_in_targets_or_predictions_is_named() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0.0, 1.0, math.nan, 2.0])
    regression = bf.bayesify(nn.Linear(3, 1), "point", likelihood=bf.likelihood("normal", std=1.0))
    with pytest.raises(ValueError, match=r"target holds NaN or infinite values"):
        bf.evaluate(regression, loader(x, y))
    x[1] = math.nan
    with pytest.raises(ValueError, match="the inputs of 1 of 4 examples \\(counted from 0: 1\\) hold NaN"):
        bf.evaluate(bf.bayesify(nn.Linear(3, 2), "point"), loader(x, torch.zeros(4).long()))


def test_a_dict_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dict without 'labels' \(keys: features\)"):
        bf.evaluate(token_model(), [{"features": torch.randn(2, 4)}])


@pytest.mark.parametrize("batch", [torch.randn(2, 4), [torch.randn(2, 4)]])
def test_inputs_without_targets_are_refused(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"\(input, target\) pairs"):
        bf.evaluate(token_model(), [batch])


def test_soft_labels_are_refused_in_words() -> None:
    model = ensemble(nn.Linear(4, 3), "categorical")
    with pytest.raises((ValueError, TypeError), match="class indices"):
        bf.evaluate(model, [(torch.randn(2, 4), torch.full((2, 3), 1 / 3))])


@pytest.mark.parametrize("target", [torch.tensor([0, 3]), torch.tensor([0, 1, 2])])
def test_targets_that_do_not_fit_are_refused_in_words(target: Tensor) -> None:
    model = ensemble(nn.Linear(4, 3), "categorical")
    with pytest.raises(ValueError, match="target"):
        bf.evaluate(model, [(torch.randn(2, 4), target)])


# -- out of distribution ------------------------------------------------------------------------------
def test_other_inputs_are_told_apart_by_entropy() -> None:
    x, y = data(load_digits)
    model = ensemble(nn.Linear(64, 10), "categorical")
    others = torch.randn(30, 64)
    result = bf.evaluate(model, loader(x, y), ood=[others[:20], others[20:]])
    inside, outside = model.predict(x).entropy, model.predict(others).entropy
    for name in ("auroc", "aupr", "fpr95"):
        assert result[name] == pytest.approx(float(metrics.METRICS[name](inside, outside)), abs=1e-6)
    named = bf.evaluate(model, loader(x, y), ood={"noise": [(others, torch.zeros(30))]})
    assert named["noise/auroc"] == pytest.approx(result["auroc"], abs=1e-6)


def test_other_inputs_of_a_regression_are_refused() -> None:
    model = ensemble(nn.Linear(10, 1), "normal")
    with pytest.raises(ValueError, match="ood= is for classification"):
        bf.evaluate(model, [], ood=[torch.randn(3, 10)])
    with pytest.raises(ValueError, match="the ood loader is empty"):
        bf.evaluate(token_model(), [(torch.randn(2, 5, 4), torch.zeros(2, 5).long())], ood=[])


def test_crps_and_calibration_of_a_regression() -> None:
    x, y = torch.randn(30, 3), torch.randn(30, 1)
    model = ensemble(nn.Linear(3, 1), bf.likelihood("normal", std=0.5))
    result = bf.evaluate(model, loader(x, y))
    means, variances = model.predict(x, keep_samples=True).per_draw
    assert result["crps"] == pytest.approx(float(metrics.crps(means, variances, y)), rel=1e-6)
    level = metrics.quantile_levels(means, variances, y)
    assert result["calibration_error"] == pytest.approx(float(metrics.calibration_error(level)), abs=1e-6)
    low, high = model.predict(x, keep_samples=True).interval(0.9)
    assert result["coverage90"] == pytest.approx(float(metrics.interval_coverage(low, high, y)), abs=1e-6)
