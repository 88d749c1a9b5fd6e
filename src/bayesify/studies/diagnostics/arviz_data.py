"""Draws of a model as arviz takes them, for its R-hat, effective sample size, cross-validation and plots."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.batches import beside, check_loader, inputs_of, target_of
from bayesify.checks import Count, checked
from bayesify.names import lookup
from bayesify.posteriors import Chain, Members
from bayesify.predict.accumulation import one_more
from bayesify.predict.prediction import evaluating
from bayesify.weights import as_call


@checked
def to_arviz(
    model: Any,
    loader: Iterable[Any],
    weights: Sequence[str] | None = None,
    num_draws: Count = 100,
    entries: Count = 4,
    num_examples: Count = 20,
    generator: Generator | None = None,
) -> Any:
    """The draws of a model and what they say of the data, as an `arviz.InferenceData`.

    posterior:       `entries` numbers of each weight, evenly spread over it; `prediction`, the probabilities or
                     means at the first `num_examples` examples. Take R-hat and effective sample size of these: weights
                     of a network are not identified, what it says is
    log_likelihood:  log p(y | x, draw) of every example
    sample_stats:    of chains, after which `step` a draw was taken, and `lp`, log p(w) + Σ log p(y | x, w): the log
                     posterior, where the loader gives the training data
    observed_data:   the targets

    A chain of arviz is one of the chains of `bf.ThermostatMCMC`, cut to the shortest, or one member of an ensemble.
    Other methods draw `num_draws` independent weights, shared among members.

    weights: names, as in `model.summary()`; None: all random ones
    """
    az = _arviz()
    check_loader(loader, "loader")
    names = [w.name for w in model.selection.random]
    chosen = (
        names if weights is None else [lookup({n: n for n in names}, each, "weights") for each in weights]
    )
    batches = [(as_call(beside(model, inputs_of(b))), beside(model, target_of(b))) for b in loader]
    if not batches:
        raise ValueError("the loader is empty: there is nothing to predict")
    found: dict[Any, list[dict[str, Tensor]]] = {}
    with torch.no_grad(), model._locked(), evaluating(model):
        for chain, member, drawn, stats in _draws(model, num_draws, generator):
            row = {name: _few(drawn[name], entries) for name in chosen if name in drawn}
            said = _said(model, batches, drawn, member, num_examples)
            if "lp" in stats:
                stats["lp"] = stats["lp"] + said["log_likelihood"].sum()
            found.setdefault(chain, []).append({**row, **said, **stats})
    if not found:
        raise RuntimeError("the chain has no draws yet")
    length = min(map(len, found.values()))
    rows = [chain[-length:] for chain in found.values()]
    table = {
        key: torch.stack([torch.stack([draw[key] for draw in c]) for c in rows]).cpu().numpy()
        for key in rows[0][0]
    }
    groups = {
        "log_likelihood": {"y": table.pop("log_likelihood")},
        "sample_stats": {key: table.pop(key) for key in ("lp", "step") if key in table},
        "posterior": table,
        "observed_data": {"y": torch.cat([target for _, target in batches]).cpu().numpy()},
    }
    return az.from_dict(
        **{key: group for key, group in groups.items() if group}, attrs={"method": model.method.name}
    )


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what its next version will be
            import arviz
    except ImportError as error:
        raise ImportError(f"to_arviz needs the package arviz ({error}): pip install 'arviz<1'") from error
    return arviz


def _draws(
    model: Any, num_draws: int, generator: Generator | None
) -> Iterator[tuple[Any, int, Mapping[str, Tensor], dict[str, Tensor]]]:
    """Of every draw its chain, the member it is of, the weights and what the sampler says of it."""
    posterior = model.posterior
    parts: list[Any] = list(posterior.posteriors) if isinstance(posterior, Members) else [posterior]
    for member, part in enumerate(parts):
        if isinstance(part, Chain):
            for key, weights in part.each():
                step = torch.tensor(key.step)
                yield (member, key.chain), member, weights, {"step": step, "lp": -part.energy(weights)}
            continue
        for _, weights in part.stream(0, -(-num_draws // len(parts)), 1, generator):
            yield member, member, {name: w[0] for name, w in weights.items()}, {}


def _few(weight: Tensor, most: int) -> Tensor:
    """At most so many entries, evenly spread."""
    places = torch.linspace(0, weight.numel() - 1, min(most, weight.numel())).round().long()
    return weight.flatten()[places.to(weight.device)]


def _said(
    model: Any, batches: list[Any], weights: Mapping[str, Tensor], member: int, num_examples: int
) -> dict[str, Tensor]:
    """What one draw predicts of the first examples, and the log-likelihood of all."""
    values: list[Tensor] = []
    log_probs: list[Tensor] = []
    for call, target in batches:
        output = model.pick(model.posterior.run_draw(model.net, call, weights, member))
        values.append(model.likelihood.summaries(one_more(output))[0][0])
        matched = model.likelihood.matched(output, target, True)
        log_probs.append(model.likelihood.per_example(output, matched))
    return {"prediction": torch.cat(values)[:num_examples], "log_likelihood": torch.cat(log_probs)}
