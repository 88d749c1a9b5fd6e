"""bf.merge: models that were trained apart become the members of one deep ensemble."""

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from bayesify.files.differences import first_few, shapes_of
from bayesify.files.storage import load
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.base import LEARNED
from bayesify.methods import DeepEnsemble, Method
from bayesify.model import BayesianModule, bayesify
from bayesify.posteriors import Members, Posterior, without_guards
from bayesify.weights.copies import copy_of
from bayesify.weights.units import NAME as UNITS
from bayesify.weights.units import like_stored


class Member(NamedTuple):
    """One network and the posterior over its weights, as a file holds them."""

    path: Path
    net: nn.Module
    posterior: Posterior
    method: Method
    likelihood: Likelihood
    random: list[str]


def merge(
    paths: Iterable[str | Path],
    net: nn.Module,
    output: Callable[[Any], Any] | None = None,
    likelihood: Likelihood | None = None,
) -> BayesianModule:
    """The models in `paths` as one `bf.DeepEnsemble` around `net`, each with its own weights and posterior.

    paths:   files of `bf.save`: the same network, method and likelihood, trained apart (with other seeds,
             perhaps on other machines). A file that holds an ensemble gives all its members.
    net:     a network of that architecture; it becomes member 0
    output:  as in `bf.bayesify`, where the models were made with it
    likelihood: as in `bf.load`, where the models have one of your own

    p(y | x) = 1/M Σ_m p_m(y | x), the plain average over the M members. What the likelihood of every member learned
    for itself becomes one (`Likelihood.pooled`): of a noise level std² = 1/M Σ_m std_m², which leaves the predictive
    mean and variance those of the average. What `bf.calibrate` fitted to the members does not hold for their average
    and is left out.

    Everything is checked first: files that cannot be read or do not belong together raise, the difference
    is named, and `net` stays as it was.

    >>> model = bf.merge(["run-0/model.safetensors", "run-1/model.safetensors"], make_net())
    """
    files = _files(paths)
    models = [
        load(path, without_guards(copy_of(net)), output=output, likelihood=copy.deepcopy(likelihood))
        for path in files
    ]
    members = [member for path, model in zip(files, models, strict=True) for member in _members(path, model)]
    _check_same(members)
    _warn_of_copies(members)
    held = [shapes_of(member.net.state_dict()) for member in members]
    like = next((shapes for shapes in held if UNITS in shapes), {})
    like_stored([net, *(member.net for member in members if UNITS not in member.net.state_dict())], like, "")
    num_data = {model.num_data for model in models}
    method = DeepEnsemble(members[0].method.fixed_to(members[0].random), len(members))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the members are overwritten: how they started does not matter
        merged = bayesify(
            net, method, _likelihood(members), num_data.pop() if len(num_data) == 1 else None, output=output
        )
    assert isinstance(merged.posterior, Members)
    nets = merged.posterior.nets(merged.net)
    for member, its_net, its_posterior in zip(members, nets, merged.posterior.posteriors, strict=True):
        its_net.load_state_dict(member.net.state_dict())
        its_posterior.take_over(member.posterior)  # type: ignore[operator]
    merged.posterior.not_reset = []  # nothing of how they started is left
    merged.kl_weight.copy_(models[0].kl_weight)
    merged.start = models[0].start
    seen = {model.augment for model in models}
    merged.augment = seen.pop() if len(seen) == 1 else None
    return merged


def _files(paths: Iterable[str | Path]) -> list[Path]:
    if isinstance(paths, str | Path):
        raise TypeError(f"paths={str(paths)!r} must be a list of files, one for each model")
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("paths is empty: give the files of the models to merge")
    return files


def _members(path: Path, model: BayesianModule) -> list[Member]:
    nets, posteriors = [model.net], [model.posterior]
    method = model.method
    if isinstance(method, DeepEnsemble):
        assert isinstance(model.posterior, Members)
        method, nets = method.method, model.posterior.nets(model.net)
        posteriors = list(model.posterior.posteriors)  # type: ignore[arg-type]
    random = [weight.name for weight in model.selection.random]
    return [
        Member(path, each, posterior, method, model.likelihood, random)
        for each, posterior in zip(nets, posteriors, strict=True)
    ]


def _check_same(members: list[Member]) -> None:
    """Every member by the same method, over the same weights, with the same likelihood."""
    first = members[0]
    for member in members[1:]:
        found = _differences(_facts(first), _facts(member))
        here, there = set(member.random), set(first.random)
        for words, names in (("random only here", here - there), ("random only there", there - here)):
            if names:
                found.append(f"{words}: {first_few(sorted(names), 5)}")
        if found:
            raise ValueError(
                f"{member.path} cannot be merged with {first.path}: {'; '.join(found)}"
                f"{LEARNED if any('likelihood.' in text for text in found) else ''}. "
                f"Members are models of one network by one method, trained with different seeds"
            )


def _facts(member: Member) -> dict[str, Any]:
    """What all members must have in common, as plain data."""
    law = member.likelihood
    options = {key: value for key, value in law.options.items() if key not in law.learned}
    return {
        "method": {"name": member.method.name, **member.method.options()},
        "likelihood": {"name": law.name, **options},
    }


def _differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Where two nests of plain data differ, as sentences with both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        if there.get("name") != here.get("name"):  # options of another thing say nothing
            return _differences(there.get("name"), here.get("name"), name)
        keys = dict.fromkeys([*there, *here])
        return [
            text
            for key in keys
            for text in _differences(there.get(key), here.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if there == here else [f"{name} is {here!r} here and {there!r} there"]


def _warn_of_copies(members: list[Member]) -> None:
    for a, b in combinations(members, 2):
        pairs = zip(a.net.state_dict().values(), b.net.state_dict().values(), strict=True)
        if all(torch.equal(mine, other) for mine, other in pairs):
            warnings.warn(
                f"{a.path} and {b.path} hold the same weights: train every member with a seed of its own",
                stacklevel=3,
            )


def _likelihood(members: list[Member]) -> Likelihood:
    """The members' likelihood; what each has learned for itself is pooled."""
    first, *others = (member.likelihood for member in members)
    return first.pooled(others) if any(True for _ in first.parameters()) else first
