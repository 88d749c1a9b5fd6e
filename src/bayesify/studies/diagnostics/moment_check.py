"""Are the variances of one pass those of the posterior? Compared with drawn weights on the user's own network."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesify.batches import first_examples, inputs_for, target_of, to_device
from bayesify.checks import Count, check_whole, checked
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import match_real
from bayesify.moments import Moments, certain, replace
from bayesify.moments.sweep import finished
from bayesify.moments.values import mean_of
from bayesify.posteriors import Call, Factorized, Members
from bayesify.predict.output_draws import draws_of
from bayesify.predict.prediction import JOINED_NUMBERS, evaluating, of_draws
from bayesify.studies.diagnostics.moment_verdict import MomentCheck, verdict
from bayesify.torch_internals import pytree
from bayesify.weights import as_call

GROUPS = 10  # of draws, for the Monte-Carlo error
MOST = 4096  # outputs of an example, spread evenly: more tell no more
LOGIT_DRAWS = 2000  # of the outputs from their moments: cheap, so that only the drawn weights are noisy


@checked
def moment_check(
    model: Any, loader: Iterable[Any], num_draws: Count = 200, num_examples: int = 64, seed: int = 0
) -> MomentCheck:
    """One-pass variances of a density-propagated model beside those of drawn weights, and what to do.

    loader:       gives inputs, (input, target) pairs or dicts; with targets the answers of single draws are scored
                  too. One tensor or dict of inputs will do
    num_draws:    of the weights, rounded up to tens: each is a pass of the plain network. The variance of one output
                  is known to √(2 / num_draws), the ratio of all to its `error`
    num_examples: how many of the loader's first examples are looked at

    The model is looked at in eval mode and stays as it is. Of an ensemble every member is a model of its own here.
    Inputs with a variance count by their means: this is about the weights.

    >>> check = bf.diagnostics.moment_check(model, test_loader)
    >>> print(check)
    """
    if model.posterior.sampling != "moments":
        raise TypeError(
            f"moment_check compares the variances of one pass with drawn weights, and method {model.method.name!r} "
            f"has no such pass: it is for bf.DensityPropagation, or bf.DeepEnsemble of it"
        )
    check_whole(num_draws, "num_draws", 2 * GROUPS)
    check_whole(num_examples, "num_examples", 1)
    each = -(-num_draws // GROUPS)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    found: list[_Found] = []
    left = num_examples
    with model._locked(), evaluating(model), torch.no_grad():
        for batch in [loader] if isinstance(loader, Tensor | Mapping) else loader:
            x, target = _first(model, batch, left)
            call = as_call(replace(x, Moments, mean_of), generator=generator)
            members = range(len(model.posterior.nets(model.net)))
            found += [_compare(model, call, target, member, each) for member in members]
            left -= found[-1].size
            if left <= 0:
                break
    if not found:
        raise ValueError("the loader is empty: nothing to compare")
    return _conclude(model, found, GROUPS * each, num_examples - left)


def relative_width(model: Any) -> float:
    """The median over all random weights of σ / rms(w), rms over the means of the weight's tensor."""
    widths = []
    with torch.no_grad():
        for each in _members(model):
            for q in each.distributions(list(each.slots)).values():
                size = q.mean.square().mean().sqrt()
                if size > 0:
                    widths.append((q.variance.sqrt() / size).expand(q.mean.shape).flatten())
    return torch.cat(widths).median().item() if widths else math.inf


def _members(model: Any) -> list[Factorized]:
    posterior = model.posterior
    return [*posterior.posteriors] if isinstance(posterior, Members) else [posterior]


class _Found(NamedTuple):
    """Of one batch and member, entries in a row; `without` has a row for each group of draws left out."""

    log_ratio: Tensor
    without: Tensor
    shift: Tensor  # (mean − drawn mean)² / drawn variance − what chance gives
    probs: Tensor  # (difference of the predictions)² − what chance gives
    predicted: Tensor  # summed score and count, of the moments' prediction
    drawn: Tensor  # of single draws
    size: int  # examples
    is_swept: bool


def _compare(model: Any, call: Call, target: Tensor | None, member: int, each: int) -> _Found:
    """`GROUPS` groups of `each` draws of the weights beside the moments of one pass."""
    output = finished(replace(model.pick(model.posterior.run(model.net, call, member)), Tensor, certain))
    heads = output if type(output) in (tuple, list) else [output]
    mean, var = _entries([h.mean for h in heads]), _entries([h.var for h in heads])
    drawn = [_group(model, call, target, member, each, mean) for _ in range(GROUPS)]
    total, values, scores = (torch.stack(part) for part in zip(*drawn, strict=True))
    shift, spread = _moments(total.sum(0), GROUPS * each)
    _, without = _moments(total.sum(0) - total, (GROUPS - 1) * each)
    varies = (without > 0).all(0)
    average, variance = _moments(values.sum(0), GROUPS * each)
    value = _mean_of_moments(model.likelihood, output, call.generator)
    return _Found(
        _log(var[varies] / spread[varies]),
        _log(var[varies] / without[:, varies]),
        (shift.square() / spread)[varies].cpu() - 1 / (GROUPS * each),
        ((average - _entries([value])).square() - variance / (GROUPS * each)).flatten().cpu(),
        _score(model.likelihood, value[None], target),
        scores.sum(0),
        len(mean),
        all(head.cov is not None or head.top is not None for head in heads),
    )


def _group(
    model: Any, call: Call, target: Tensor | None, member: int, size: int, mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of `size` draws of the weights: sums of output − mean and of its square, those of predictions, and scores."""
    chunks = list(of_draws(model, call, member, size))
    outputs = pytree.tree_map(lambda *parts: torch.cat(parts), *chunks)
    value = model.likelihood.summaries(outputs)[0].double()
    flat = _entries(pytree.tree_leaves(outputs), 2) - mean
    return _sums(flat), _sums(_entries([value], 2)), _score(model.likelihood, value, target)


def _sums(values: Tensor) -> Tensor:
    """Over the draws, of the values and of their squares."""
    return torch.stack([values.sum(0), values.square().sum(0)])


def _entries(tensors: list[Tensor], start: int = 1) -> Tensor:
    """Several heads as one row of numbers for each example: of many numbers every so many-th."""
    flat = torch.cat([t.flatten(start) for t in tensors], start)
    return flat[..., :: -(-flat.shape[-1] // MOST)].double()


def _moments(sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance from what `_sums` gives, (…, 2, batch, n)."""
    first, second = sums.unbind(-3)
    return first / count, ((second - first.square() / count) / (count - 1)).clamp_min(0)


def _mean_of_moments(likelihood: Likelihood, output: Any, generator: Generator | None) -> Tensor:
    """The probabilities (or means) that `predict` averages, of outputs drawn from their moments."""
    total: Any = 0
    for chunk in draws_of(output, LOGIT_DRAWS, generator, JOINED_NUMBERS):
        total = total + likelihood.summaries(chunk)[0].double().sum(0)
    return total / LOGIT_DRAWS


def _score(likelihood: Likelihood, value: Tensor, target: Tensor | None) -> Tensor:
    """Right answers (regression: squared errors) of predictions (draws, batch, …), summed, and how many they are."""
    if target is None:
        return torch.zeros(2, dtype=torch.float64)
    repeated = target.expand(len(value), *target.shape).flatten(0, 1)
    value = value.flatten(0, 1)
    if likelihood.task == "regression":
        each = (match_real(value, repeated, values=True) - value).square().flatten()
    else:
        classes = likelihood.classes
        label, counted = classes.indices(likelihood.check_probs(value, repeated))
        each = classes.rows(value)[counted].argmax(1) == label[counted]
    return torch.stack([each.double().sum(), each.new_tensor(each.numel(), dtype=torch.float64)]).cpu()


def _conclude(model: Any, found: list[_Found], num_draws: int, num_examples: int) -> MomentCheck:
    """All entries of all batches as one result."""
    log_ratio = torch.cat([f.log_ratio for f in found])
    if not log_ratio.numel():
        raise ValueError(
            "the outputs are the same for all drawn weights: no random weight reaches them (model.summary())"
        )
    without = torch.cat([f.without for f in found], 1).mean(1)
    plain = log_ratio.mean()
    ratio = (GROUPS * plain - (GROUPS - 1) * without.mean()).exp().item()  # the jackknife's, without bias
    error = math.sqrt(GROUPS - 1) * without.std(correction=0)
    low, high = log_ratio.quantile(torch.tensor([0.05, 0.95], dtype=torch.float64)).exp().tolist()
    classes = model.likelihood.task == "classification"
    predicted, drawn = (_average(sum(getattr(f, n) for f in found), classes) for n in ("predicted", "drawn"))
    check = MomentCheck(
        ratio=ratio,
        error=ratio * error.item(),
        low=low,
        high=high,
        mean_error=_root(torch.cat([f.shift for f in found])),
        probs_error=_root(torch.cat([f.probs for f in found])) if classes else None,
        accuracy=predicted if classes else None,
        draw_accuracy=drawn if classes else None,
        rmse=None if classes else predicted,
        draw_rmse=None if classes else drawn,
        width=relative_width(model),
        num_draws=num_draws,
        num_examples=num_examples,
    )
    return check.saying(verdict(check, _members(model)[0], all(f.is_swept for f in found)))


def _log(ratio: Tensor) -> Tensor:
    """Finite where one pass sees no variance at all."""
    return ratio.clamp_min(1e-12).log().cpu()


def _root(squares: Tensor) -> float:
    return squares.mean().clamp_min(0).sqrt().item()


def _average(score: Any, classes: bool) -> float | None:
    """The share of right answers, or the root of the mean squared error; None without targets."""
    total, count = score.tolist()
    if not count:
        return None
    return total / count if classes else math.sqrt(total / count)


def _first(model: Any, batch: Any, most: int) -> tuple[Any, Tensor | None]:
    """Inputs of at most so many examples, and their targets where there are any."""
    x = inputs_for(model, batch)
    try:
        target = to_device(target_of(batch), next(model.parameters()).device)
    except ValueError:  # inputs alone
        target = None
    return first_examples((x, target), most)[0]
