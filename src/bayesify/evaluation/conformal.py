"""bf.conformal: sets and intervals with finite-sample coverage, fitted on examples the model was not trained on."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import check_loader
from bayesify.checks import Count, NotNegative, NotNegativeCount, Share, checked
from bayesify.evaluation.evaluate import counted_targets, predictions
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import match_real
from bayesify.model import BayesianModule, bayesify
from bayesify.names import check_choice
from bayesify.predict.conformal import SCORES, ConformalRule, Seed, fewest, threshold
from bayesify.predict.frozen import Frozen
from bayesify.predict.predictive import Predictive
from bayesify.predict.views import AUTO

Parts = Iterable[tuple[Predictive, Tensor]]
NAMED = 10  # classes that a message names


@checked
def conformal(
    model: nn.Module,
    calibration_loader: Iterable[Any] | None,
    coverage: Share = 0.9,
    score: str | None = None,
    by_class: bool = False,
    *,
    likelihood: Likelihood | str | None = None,
    num_draws: Count = 20,
    seed: Seed | None = 0,
    penalty: NotNegative = 0.01,
    num_free: NotNegativeCount = 5,
    generator: Generator | None = None,
    augment: Callable[..., Any] | str | None = AUTO,
) -> BayesianModule:
    """Fit the rule by which `model.predict(x).sets` (classes) or `.interval` (regression) hold the target with a
    probability of at least `coverage`; returns the model. `bf.save` stores the rule.

    The coverage is that of new examples like those of `calibration_loader`, on average over both, for any model and
    any number of examples. It needs examples that were used for nothing else; n of them leave the coverage of one
    model a std of about √(coverage (1 − coverage) / n). Where n is too small, sets hold every class and intervals are
    infinite, and a warning says how many are needed. Fitting again starts anew; None in place of the loader takes the
    rule back.

    model:      what bf.bayesify or model.freeze returned, or a plain network, which is wrapped by `bf.Point` with
                `likelihood` ("categorical" where none is given): use what is returned
    score:      classes "aps" (the default: sets grow where the model is unsure), "lac" (the smallest sets on average)
                or "raps" (aps, with `penalty` on each class behind the first `num_free`); regression "std" (the
                default: as wide as the predicted std says), "absolute" (of one width) or "quantile" (of the predictive
                law, from its draws)
    by_class:   the coverage holds for the examples of each class; every class needs examples enough of its own
    num_draws:  of each prediction; predictions with sets and intervals need the same number, which a frozen
                predictor has
    seed:       of the random share of the last class in aps and raps; None: all of it counts, sets are larger
    augment:    give it here where `model.predict` will get it

    Training never sees the rule; `bf.fit` drops it when it trains on, and `bf.calibrate` when it changes predictions.

    >>> bf.conformal(model, calibration_loader, coverage=0.9)
    >>> model.predict(x).sets
    """
    found: Any = model
    if isinstance(model, BayesianModule | Frozen):
        if likelihood is not None:
            raise ValueError(f"likelihood={likelihood!r} is for a plain network: this model has its own")
    else:
        found = bayesify(model, "point", "categorical" if likelihood is None else likelihood)
    if calibration_loader is None:
        found.conformal = None
        return found
    check_loader(calibration_loader, "calibration_loader")
    rule = unfitted(
        found.likelihood, score, coverage, by_class, seed=seed, penalty=penalty, num_free=num_free
    )
    options: dict[str, Any] = {} if augment == AUTO else {"augment": augment}
    options |= {"keep_samples": True} if rule.keeps_samples else {}
    before, found.conformal = found.conformal, None
    try:
        rule = fitted(rule, predictions(found, calibration_loader, num_draws, generator, **options), by_class)
    except BaseException:
        found.conformal = before
        raise
    found.conformal = rule
    if isinstance(found, BayesianModule):
        found.remember()
    _warn_of_few(rule, by_class)
    return found


def unfitted(
    likelihood: Likelihood, score: str | None, coverage: float, by_class: bool = False, **options: Any
) -> ConformalRule:
    """A rule without thresholds; raises where it does not suit the likelihood."""
    known = SCORES[likelihood.task]
    score = next(iter(known)) if score is None else score
    check_choice(frozenset(known), score, f"score of a {likelihood.task}")
    if by_class and likelihood.task == "regression":
        raise ValueError("by_class=True is for classification: a regression has no classes")
    return ConformalRule(score, coverage, [], 1, 1, **options)


def fitted(rule: ConformalRule, parts: Parts, by_class: bool = False) -> ConformalRule:
    """The rule with the thresholds of these predictions and targets."""
    scores, labels, last = [], [], None
    for prediction, target in parts:
        each, label = scored(rule, prediction, target)
        scores.append(each.cpu())
        labels.append(label.cpu())
        last = prediction
    if last is None or not sum(map(len, scores)):
        raise ValueError(
            "calibration_loader has no target that counts: give examples the model was not trained on"
        )
    joined = torch.cat(scores)
    if not joined.isfinite().all():
        wrong = int((~joined.isfinite()).any(1).sum())
        raise ValueError(
            f"score={rule.score!r} is not finite for {wrong} of {len(joined)} examples: the model predicts infinite "
            f"numbers; where that is the variance alone use score='quantile'"
        )
    if by_class:
        num_classes = last.likelihood.classes.count(last.mean)
        columns = [joined[torch.cat(labels) == c, 0] for c in range(num_classes)]
    else:
        columns = [*joined.unbind(1)]
    thresholds = [threshold(column, rule.coverage) for column in columns]
    return replace(rule, thresholds=thresholds, num_draws=last.num_draws, num_data=len(joined))


def scored(rule: ConformalRule, prediction: Predictive, target: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of the targets that count, (n, 1) or (n, numbers of a target), and their classes (n,)."""
    if prediction.likelihood.task == "classification":
        scores = rule.class_scores(prediction)
        label, counted = counted_targets(prediction, target)
        return scores[counted].gather(1, label[counted, None]), label[counted]
    low, high, unit = rule.ends(prediction)
    y = match_real(prediction.mean, target, values=True)
    scores = torch.maximum(low - y, y - high) / unit + 0 * unit  # NaN where the unit is infinite
    return scores.double().reshape(len(y), -1), torch.zeros(len(y), dtype=torch.long)


def _warn_of_few(rule: ConformalRule, by_class: bool) -> None:
    few = [str(c) for c, q in enumerate(rule.thresholds) if q is None]
    if not few:
        return
    need = fewest(rule.coverage)
    if by_class:
        more = f" and {len(few) - NAMED} more" if len(few) > NAMED else ""
        text = (
            f"coverage={rule.coverage:g} of each class needs {need} calibration examples of it; classes "
            f"{', '.join(few[:NAMED])}{more} have fewer, and are in every set: give more, or leave out by_class=True"
        )
    else:
        sets = rule.score in SCORES["classification"]
        text = (
            f"coverage={rule.coverage:g} needs at least {need} calibration examples, not {rule.num_data}: "
            f"{'sets hold every class' if sets else 'intervals are infinite'}; give more, or a lower coverage"
        )
    warnings.warn(text, stacklevel=4)
