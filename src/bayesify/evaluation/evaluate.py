"""bf.evaluate: a model's predictions on a data set as a dictionary of conventional metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.batches import check_loader, inputs_for, target_of, to_device
from bayesify.checks import Count, checked
from bayesify.evaluation import metrics
from bayesify.evaluation.metrics import ClassificationTally, RegressionTally
from bayesify.evaluation.metrics.registry import measured, needs_whole, reported
from bayesify.likelihoods.shapes import match_real
from bayesify.model import BayesianModule
from bayesify.predict.at_means import AtMeans
from bayesify.predict.decisions import UNCERTAINTIES
from bayesify.predict.nonfinite import counted_from
from bayesify.predict.predictive import Predictive
from bayesify.predict.views import AUTO

#: uncertainties of a prediction that tell unknown inputs from known ones; larger is less certain
SCORES = {name: UNCERTAINTIES[name] for name in ("entropy", "mutual_information", "confidence", "agreement")}


@checked
def evaluate(
    model: Any,
    loader: Iterable[Any],
    num_draws: Count = 20,
    num_bins: Count = 15,
    generator: Generator | None = None,
    *,
    ood: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    augment: Callable[..., Any] | str | None = AUTO,
    mode: str = "ensemble",
) -> dict[str, float]:
    """Metrics of `model` over `loader`, which gives (input, target) pairs or dicts with "labels".

    Classification: accuracy (top 5 too for more than ten classes), nll, brier; ece, mce, adaptive_ece and
    classwise_ece over `num_bins` bins; aurc; the means of confidence, entropy, epistemic uncertainty and
    disagreement. With several positions per example, over the positions that are not ignored.
    Regression: rmse, nll (mixture over draws, per example), crps, coverage90, mean std, calibration_error.
    And what `bf.metrics.register` added.

    ood: inputs of another kind (or several sets of them by name): adds auroc, aupr and fpr95 of the
    entropy, out of distribution positive; of named sets as "name/auroc".
    augment: every draw sees a view of its own, as in `model.predict`
    mode: of `model.predict`
    """
    views: dict[str, Any] = {} if augment == AUTO else {"augment": augment}
    views |= {} if mode == "ensemble" else {"mode": mode}  # what stands in for a model need not know modes
    if not hasattr(model, "likelihood"):
        raise TypeError(f"model={type(model).__name__} must be what bf.bayesify returned")
    check_loader(loader, "loader")
    if model.likelihood.task == "regression":
        if ood is not None:
            raise ValueError("ood= is for classification: a regression has no score of unknown inputs here")
        return _regression(model, loader, num_draws, generator, **views)
    tally, num_data = tally_of(model, loader, num_draws, num_bins, generator, **views)
    result = {**tally.metrics(), "num_bins": float(num_bins), "num_data": float(num_data)}
    sets = ood if isinstance(ood, Mapping) else {} if ood is None else {"": ood}
    for name, others in sets.items():
        scores = scores_of(model, others, num_draws, generator, **views)["entropy"]
        found = {key: measured(key, tally.values()["entropy"], scores) for key in reported("ood")}
        result |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
    return result


def tally_of(
    model: Any,
    loader: Iterable[Any],
    num_draws: int,
    num_bins: int = 15,
    generator: Generator | None = None,
    **options: Any,
) -> tuple[ClassificationTally, int]:
    """The tally of a classifier over a loader, and the number of examples."""
    tally, num_data = ClassificationTally(num_bins, needs_whole("classification")), 0
    for prediction, target in predictions(model, loader, num_draws, generator, **options):
        add_prediction(tally, prediction, target)
        num_data += len(target)
    if num_data == 0:
        raise ValueError("the loader is empty: nothing to evaluate")
    if len(tally) == 0:
        raise ValueError("every target is ignored: nothing to evaluate")
    return tally, num_data


def predictions(
    model: Any, loader: Iterable[Any], num_draws: int, generator: Generator | None, **options: Any
) -> Iterator[tuple[Predictive, Tensor]]:
    """What `model` predicts for every batch, and the batch's targets beside it."""
    first = 0
    for batch in loader:
        target = to_device(target_of(batch), next(model.parameters()).device)
        with counted_from(first):
            prediction = model.predict(inputs_for(model, batch), num_draws, generator=generator, **options)
        first += len(prediction)
        yield prediction, target


def add_prediction(tally: ClassificationTally, prediction: Predictive, target: Tensor) -> None:
    """Every counted position of a batch: (positions, classes) with targets and uncertainties."""
    target, counted = counted_targets(prediction, target)
    if not counted.any():
        return
    extra = {"entropy": prediction.entropy, "epistemic": prediction.epistemic}
    rows = prediction.likelihood.classes.rows  # (positions, classes)
    tally.add(
        rows(prediction.mean)[counted],
        target[counted],
        None if prediction.votes is None else rows(prediction.votes)[counted],
        prediction.num_draws,
        **{key: value.reshape(-1)[counted] for key, value in extra.items()},
    )


def counted_targets(prediction: Predictive, target: Tensor) -> tuple[Tensor, Tensor]:
    """Class indices (positions,), and which of them count."""
    likelihood = prediction.likelihood
    return likelihood.classes.indices(likelihood.check_probs(prediction.mean, target))


def scores_of(
    model: Any, loader: Iterable[Any], num_draws: int, generator: Generator | None = None, **options: Any
) -> dict[str, Tensor]:
    """name of a score -> one number per input of `loader`; targets, if any, are not looked at."""
    parts: list[dict[str, Tensor]] = []
    first = 0
    for batch in loader:
        with counted_from(first):
            prediction = model.predict(inputs_for(model, batch), num_draws, generator=generator, **options)
        first += len(prediction)
        parts.append({name: score(prediction).flatten().cpu() for name, score in SCORES.items()})
    if not parts:
        raise ValueError("the ood loader is empty: nothing to compare with")
    return {name: torch.cat([part[name] for part in parts]) for name in SCORES}


def _regression(
    model: Any, loader: Iterable[Any], num_draws: int, generator: Generator | None, **options: Any
) -> dict[str, float]:
    tally = RegressionTally(needs_whole("regression"))
    for prediction, target in predictions(model, loader, num_draws, generator, keep_samples=True, **options):
        tally.add(prediction, **_real(prediction, target))
    if len(tally) == 0:
        raise ValueError("the loader is empty: nothing to evaluate")
    return {**tally.metrics(), "num_data": float(len(tally))}


def _real(prediction: Predictive, target: Tensor) -> dict[str, Tensor]:
    """Of a batch: the target in the shape of the mean; per example its nll, crps, std and level."""
    target = match_real(prediction.mean, target, values=True)
    nll = -prediction.log_prob(target)
    level = prediction.level(target)
    inside = (level >= 0.05) & (level <= 0.95)
    return {
        "target": target,
        "nll": nll,
        "crps": _crps(prediction, target).flatten(),
        "coverage90": inside.double().flatten(),
        "std": prediction.std.flatten(),
        "level": level.flatten(),
    }


def _crps(prediction: Predictive, target: Tensor) -> Tensor:
    if prediction.law is None:
        normals = prediction.components
        return metrics.crps_each(normals.means, normals.variances, target)
    law = prediction.law.double()
    return metrics.crps_of(law.cdf, law.quantile, target, prediction.likelihood.is_discrete)


@checked
def inference_modes(
    model: BayesianModule, loader: Iterable[Any], num_draws: Count = 20, generator: Generator | None = None
) -> dict[str, dict[str, float]]:
    """Metrics of `bf.evaluate` in each mode of `model.predict`; batch norm uses its running statistics in all of them.

    deterministic  the network at the mean of its weights (3); in a deep ensemble every member at its own
    stochastic     one draw (2) with K = 1; in a deep ensemble one of every member
    ensemble       the average over `num_draws` draws (2)

    Where the modes agree the mean stands for the posterior. Where only the deterministic one is at chance, what was
    learned is in the variances: predict with draws.

    >>> modes = bf.inference_modes(model, test_loader, num_draws=50)
    >>> modes["deterministic"]["accuracy"], modes["ensemble"]["accuracy"]
    """
    return {
        "deterministic": evaluate(AtMeans(model), loader, 1),
        "stochastic": evaluate(model, loader, 1, generator=generator),
        "ensemble": evaluate(model, loader, num_draws, generator=generator),
    }
